"""Work on data in processes of their own: `compute_service` and the program `compute_worker`."""
