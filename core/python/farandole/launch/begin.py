"""Becomes a child that is started while the launcher has threads, so that nothing may run between its fork and exec.

    python -m farandole.launch.begin PARENT CORES COMMAND [ARGS]...

CORES is a list such as 0,1; or "" for all. See `guard.start_child`.
"""

from __future__ import annotations

import os
import sys

from farandole.launch import guard


def main() -> None:
    """Does not return."""
    parent, cores, *command = sys.argv[1:]
    guard.become_child(int(parent), [int(each) for each in cores.split(",") if each])
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
