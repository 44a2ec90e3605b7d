"""MPI communicators, as mpi4py has them: a world of their ranks, and whose ranks they are.

mpi4py is never imported: whoever hands in a communicator has done so.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol, TypeVar, cast

from farandole._meeting import Exchange

_T = TypeVar("_T")


class Communicator(Protocol):
    """What is used of mpi4py's MPI.Comm."""

    def Get_rank(self) -> int: ...  # MPI's names
    def Get_size(self) -> int: ...
    def Get_group(self) -> Any: ...
    def Is_inter(self) -> bool: ...
    def allgather(self, sendobj: _T) -> list[_T]: ...


def communicator(thing: object) -> Communicator | None:
    """The thing, where it is a communicator. Raises ValueError for one that holds no group of ranks."""
    if not all(hasattr(thing, name) for name in ("Get_rank", "Get_size", "Get_group", "Is_inter", "allgather")):
        return None
    if not thing:
        raise ValueError("MPI.COMM_NULL has no ranks; ranks that are not in a communicator leave farandole alone")
    found = cast(Communicator, thing)
    if found.Is_inter():
        raise ValueError("an MPI intercommunicator is two groups of ranks; Merge() makes one of them")
    return found


def exchange_of(comm: Communicator) -> Exchange:
    """What every rank of `comm` says, by rank. Collective there."""
    return comm.allgather


def ranks_of(comm: Communicator, world: Communicator | None) -> list[int]:
    """Which ranks of `world` are in `comm`, in the order of `comm`; the world None is MPI.COMM_WORLD.

    Raises ValueError where one of them is not in `world`.
    """
    if world is None:
        world = cast(Communicator, sys.modules["mpi4py.MPI"].COMM_WORLD)
    group = comm.Get_group()
    ranks = [int(rank) for rank in type(group).Translate_ranks(group, list(range(comm.Get_size())), world.Get_group())]
    if min(ranks) < 0:
        raise ValueError("the MPI communicator has ranks that are not in this world, that of init(comm=...)")
    return ranks
