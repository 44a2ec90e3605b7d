"""Python objects among the ranks: the core's functions, with the arguments that Horovod's have here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import farandole
from farandole import ProcessSet

S = TypeVar("S")


def broadcast_object(
    obj: S | None,
    root_rank: int = 0,
    session: object = None,
    name: str | None = None,
    process_set: ProcessSet | None = None,
) -> S:
    """Rank `root_rank`'s object, on every rank of the set, see `farandole.broadcast_object`. Needs no session.

    Example:
        >>> hvd.broadcast_object({"epoch": hvd.rank()}, root_rank=1)
        {'epoch': 1}
    """
    return farandole.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0, session: object = None, name: str | None = None, process_set: ProcessSet | None = None
) -> Callable[[S | None], S]:
    """A function of an object that returns rank `root_rank`'s, to be called on every rank of the set.

    Example:
        >>> from_rank_1 = hvd.broadcast_object_fn(root_rank=1)
        >>> from_rank_1({"epoch": hvd.rank()})
        {'epoch': 1}
    """

    def broadcast(obj: S | None) -> S:
        return farandole.broadcast_object(obj, root_rank, name, process_set)

    return broadcast


def allgather_object(
    obj: S, session: object = None, name: str | None = None, process_set: ProcessSet | None = None
) -> list[S]:
    """A list with every rank's object, see `farandole.allgather_object`. Needs no session.

    Example:
        >>> hvd.allgather_object(f"rank {hvd.rank()}")
        ['rank 0', 'rank 1']
    """
    return farandole.allgather_object(obj, name, process_set)
