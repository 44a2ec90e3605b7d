"""Joining and leaving a world while MXNet's engine is at work."""

from __future__ import annotations

import atexit
from functools import cache

import farandole

from farandole_mxnet import _native

_TIME_TO_END_S = 10.0


def init(comm: object = None, process_sets: object = None) -> None:
    """As `farandole.init`."""
    farandole.init(comm, process_sets)
    leave_at_exit()


@cache
def leave_at_exit() -> None:
    """From the first operation on at the latest: `init` may have been the core's own."""
    atexit.register(shutdown)  # last, so that it comes first: before the core's, and before MXNet ends


def shutdown() -> None:
    """Leave the world: operations in flight have some seconds to end and fail then, everything is released.

    Does nothing when not initialized. Every rank should call it; `init()` may follow. Called at interpreter exit.
    """
    if farandole.is_initialized():
        _native.end(_TIME_TO_END_S)
        farandole.shutdown()
