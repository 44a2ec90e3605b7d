"""Waiting for the handles of operations."""

from __future__ import annotations

import math
from typing import TypeVar

from farandole._api.errors import ArgumentTypeError
from farandole._api.handles import Handle
from farandole._api.process_sets import ProcessSet, usable_id
from farandole._runtime.native import core

R = TypeVar("R")


def poll(handle: Handle[object]) -> bool:
    """Return whether the operation is complete, so that `synchronize` would not block.

    Example:
        >>> handle = hvd.allreduce_async(np.ones(2))
        >>> result = hvd.synchronize(handle)
        >>> hvd.poll(handle)
        True
    """
    if handle.__class__ is not core.Handle and not isinstance(handle, Handle):
        raise _refusal(handle)
    return handle.done()


def synchronize(handle: Handle[R]) -> R:
    """Block until the operation is complete and return its result; raises the operation's error. May be repeated.

    Example:
        >>> hvd.synchronize(hvd.allreduce_async(np.ones(2)))
        array([1., 1.])
    """
    if handle.__class__ is not core.Handle and not isinstance(handle, Handle):
        raise _refusal(handle)
    result: R = handle.wait()
    return result


def _refusal(thing: object) -> ArgumentTypeError:
    return ArgumentTypeError(f"{thing!r} is no handle; the functions whose names end in _async or _async_ return one")


def limit_waits(process_set: ProcessSet | None, limit_s: float) -> None:
    """Make a wait of more than `limit_s` seconds for an operation of the set raise DeadlineError; 0: no limit.

    The error names the ranks that are missing. The operation stays in flight. Other ranks have limits of their own.
    """
    core.limit_waits(usable_id(process_set), math.ceil(limit_s * 1000))
