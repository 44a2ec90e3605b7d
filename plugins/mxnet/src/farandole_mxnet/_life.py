"""Joining and leaving a world while MXNet's engine is at work."""

from __future__ import annotations

import atexit

import farandole

from farandole_mxnet import _native

_TIME_TO_END_S = 10.0


def init(comm: object = None, process_sets: object = None) -> None:
    """As `farandole.init`."""
    farandole.init(comm, process_sets)
    atexit.unregister(shutdown)
    atexit.register(shutdown)  # last, so that it comes first: before the core's own, and before MXNet ends


def shutdown() -> None:
    """Leave the world: operations in flight have some seconds to end and fail then, everything is released.

    Does nothing when not initialized. Every rank should call it; `init()` may follow. Called at interpreter exit.
    """
    if farandole.is_initialized():
        _native.end(_TIME_TO_END_S)
        farandole.shutdown()
