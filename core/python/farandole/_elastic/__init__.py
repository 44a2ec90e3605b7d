"""Elastic training: a rank dies or leaves, and the others go on in the same processes.

    state.py      what a program saves, restores and makes equal on all ranks
    sampler.py    which samples of an epoch of the data are left
    loop.py       `run`: call the function again in the next world
    copies.py     commits are kept outside of the ranks, by commit_writer.py, in a folder of commit_file.py
    notices.py    ranks are told to leave, others wait to join: all see it at the same commit
    membership.py from one epoch of this process to the next
    epochs.py     the epochs of a job, as data
    lease.py      asks the launcher, which decides about them

The plugins show these with the states of their frameworks, as `elastic`.
"""
