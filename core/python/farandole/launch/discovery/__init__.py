"""The hosts that an elastic job may use, asked again and again: a script, a file, Slurm, or a name's addresses.

    source.py      where to ask, and what the answers mean; pure
    choice.py      the source that the options name, and the wait for enough hosts before a job starts
    host_query.py  asks without blocking: each question is a process, whose time and output are limited
    host_states.py which hosts to call, and which to let go; pure

head/follow.py brings hosts into a job that runs, and takes them out of it.
"""
