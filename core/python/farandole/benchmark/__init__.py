"""The program of `farandole bench` on a rank: collectives on numpy arrays, timed. `python -m farandole.benchmark`."""
