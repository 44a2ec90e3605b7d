"""What `farandole bench` runs on every rank: collectives on numpy arrays, timed. `python -m farandole.benchmark`."""
