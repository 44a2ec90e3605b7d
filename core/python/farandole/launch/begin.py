"""Becomes a rank that is started while the launcher has threads, so that nothing may run between its fork and exec.

    python -m farandole.launch.begin PARENT CORES COMMAND [ARGS]...

CORES is a list such as 0,1; or "" for all. See processes.py.
"""

from __future__ import annotations

import os
import signal
import sys

from farandole.launch import guard


def main() -> None:
    """Does not return."""
    parent, cores, *command = sys.argv[1:]
    guard.die_with_parent(int(parent))
    if cores:
        os.sched_setaffinity(0, map(int, cores.split(",")))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
