"""Python objects among the ranks: the core's functions, with the arguments that Horovod's have here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import farandole
from farandole import ProcessSet


def broadcast_object(
    obj: Any, root_rank: int = 0, session: Any = None, name: str | None = None, process_set: ProcessSet | None = None
) -> Any:
    """Rank `root_rank`'s object, on every rank of the set, see `farandole.broadcast_object`. Needs no session."""
    return farandole.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: str | None = None, process_set: ProcessSet | None = None
) -> Callable[[Any], Any]:
    """A function of an object that returns rank `root_rank`'s, to be called on every rank of the set."""
    return lambda obj: farandole.broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet | None = None
) -> list[Any]:
    """A list with every rank's object, see `farandole.allgather_object`. Needs no session."""
    return farandole.allgather_object(obj, name, process_set)
