"""The only file here that reads the environment: of an actor, of a rank.

An actor gives the agent of its node, and so the ranks there, these variables:

    FARANDOLE_RAY_SOCKET   the abstract socket at which it hands out calls
    FARANDOLE_NODE         Ray's id of the node: two on one machine are two hosts
"""

from __future__ import annotations

import os
from collections.abc import Mapping

_SOCKET = "FARANDOLE_RAY_SOCKET"
OF_AN_ACTOR = ("OMP_NUM_THREADS",)  # Ray sets the threads of one actor, and ranks find their own number


def for_ranks(socket: str, node: str) -> dict[str, str]:
    """The variables of the ranks of an actor."""
    return {_SOCKET: socket, "FARANDOLE_NODE": node}


def of_rank() -> tuple[int, str]:
    """The number of this rank, and the actor's socket."""
    return int(os.environ["FARANDOLE_RANK"]), os.environ[_SOCKET]


def update(values: Mapping[str, str]) -> None:
    """Of this process."""
    os.environ.update(values)
