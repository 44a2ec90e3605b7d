"""The agent in a task of an engine. Its stdin and stdout are the connection to the launcher.

    python -m farandole.launch.remote.task_agent PARENT SECRET

PARENT is the id of the task's process, with which it ends. SECRET is a descriptor with what the engine has given to all
tasks of the job: only with it and the launcher's message do agents know the key of the ranks.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import NoReturn

from farandole.launch import guard
from farandole.launch.remote.agent import work

_MOST_BYTES = 4096


def main() -> NoReturn:
    """Run the agent and exit."""
    parent, secret = map(int, sys.argv[1:3])
    guard.die_with_parent(parent)  # the inner process then finds its lifeline closed, and ends the ranks
    with open(secret, "rb") as reader:
        said = reader.read(_MOST_BYTES)
    sys.exit(guard.run_guarded(partial(work, secret=said)))


if __name__ == "__main__":
    main()
