"""Elastic training: when a rank dies or leaves, the others go on in the same processes.

    state.py      states, which a program saves, restores and makes equal on all ranks
    batches.py    divides the samples of a pass over the data among the ranks; so does sampler.py
    loop.py       `run`, which calls the function again in the next world
    copies.py     keeps commits outside the ranks, with commit_writer.py and commit_file.py
    notices.py    lets all ranks learn at the same commit that ranks leave or join
    membership.py takes this process from one epoch to the next
    epochs.py     the data of an epoch
    lease.py      the connection to the launcher, which decides each epoch

The plugins export these as `elastic`, with the states of their frameworks.
"""
