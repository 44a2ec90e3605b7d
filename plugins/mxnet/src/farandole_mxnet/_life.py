"""Joining and leaving a world while MXNet's engine is at work."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from functools import cache

import farandole
import mxnet
from farandole.plugin.native import Communicator, ProcessSets

from farandole_mxnet import _native
from farandole_mxnet._errors import nobody_was_told
from farandole_mxnet._kvstores import explain_kvstores

_TIME_TO_END_S = 10.0
_unread: list[str] = []  # why gradients were lost, found at exit, when nobody had been told


def init(comm: Communicator | None = None, process_sets: ProcessSets | None = None) -> None:
    """As `farandole.init`.

    Example:
        >>> hvd.init()
        >>> hvd.is_initialized()
        True
    """
    farandole.init(comm, process_sets)
    leave_at_exit()
    explain_kvstores()


@cache
def leave_at_exit() -> None:
    """From the first operation on at the latest: `init` may have been the core's own."""
    atexit.register(_leave)  # last, so that it comes first: before the core's, and before MXNet ends


def shutdown() -> None:
    """Leave the world: operations in flight have some seconds to end and fail then, everything is released.

    Does nothing when not initialized. Every rank should call it; `init()` may follow. Called at interpreter exit.

    Example:
        >>> hvd.shutdown()
        >>> hvd.is_initialized()
        False
        >>> hvd.init()
    """
    _leave_world()


def _leave_world() -> str | None:
    """Why gradients were lost, if any were."""
    if not farandole.is_initialized():
        return None
    reason = _native.end(_TIME_TO_END_S)
    farandole.shutdown()
    return reason


def _leave() -> None:
    reason = _leave_world()
    if reason and nobody_was_told():
        _unread.append(reason)


@atexit.register  # at import: after what the script registers, and before MXNet's, which would print a traceback
def _end_with_what_nobody_read() -> None:
    """A script whose last gradients were not averaged and that never looked has not done what it was to do."""
    if _unread:
        sys.stdout.flush()
        print(f"farandole: this script ended without reading a failed result: {_unread[0]}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)
    with contextlib.suppress(farandole.FarandoleError):  # MXNet's own wait, which follows, does not raise it once more
        mxnet.nd.waitall()
