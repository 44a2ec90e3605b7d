"""Notices that the ranks will change: SIGTERM, for example before a spot instance ends, and newcomers that wait.

The signal only sets a flag, and the launcher reports newcomers. Each commit takes the maximum of all ranks' flags in a
collective of eight bytes, so either all ranks of a world raise HostsUpdatedInterrupt there, or none does.
"""

from __future__ import annotations

import signal
import threading
from array import array
from collections.abc import Callable
from types import FrameType

from farandole._api.adapter import DType
from farandole._api.errors import ArgumentTypeError, HostsUpdatedInterrupt
from farandole._api.objects import broadcast_object
from farandole._api.ops import Kind, ReduceOp
from farandole._runtime.native import core
from farandole._start import world

_LEAVING, _JOINING, _FAILED = 1, 2, 3  # the largest counts: newcomers need the state, and an error ends the function


class _Flags:
    """The notices that this process has received."""

    def __init__(self) -> None:
        self.leaving = False
        self.has_newcomers = False
        self.error: Exception | None = None
        self.look: Callable[[], bool] = lambda: False  # whether the launcher has reported new newcomers


_flags = _Flags()


def is_leaving() -> bool:
    """Return whether this process has been told to leave."""
    return _flags.leaving


def watch(look: Callable[[], bool]) -> None:
    """Treat SIGTERM as a notice from now on, unless the program handles it itself or this is not the main thread.

    `look` returns whether newcomers wait that it has not reported yet.
    """
    _flags.look = look
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_signal)


def forget_news() -> None:
    """Note that the waiting newcomers have been admitted."""
    _flags.has_newcomers = False


def report(error: Exception) -> None:
    """Let all ranks raise this error, which only rank 0 has found, at the next check."""
    _flags.error = error


def unwatch() -> None:
    """Let SIGTERM end this process again."""
    _flags.look = lambda: False
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is _on_signal:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def check() -> None:
    """Raise HostsUpdatedInterrupt on all ranks if one must leave or knows of newcomers. Collective, of eight bytes.

    An error that rank 0 has reported is raised there, and on the other ranks as a TypeError.
    """
    _flags.has_newcomers = _flags.look() or _flags.has_newcomers
    change = _FAILED if _flags.error else _JOINING if _flags.has_newcomers else _LEAVING if _flags.leaving else 0
    if world.size() > 1:
        flag = array("q", [change])
        address = flag.buffer_info()[0]
        tensor = address, address, int(DType.INT64), (1,)
        parameters = "farandole.elastic.notice", int(ReduceOp.MAX), 0, 1.0, 1.0, 0
        core.submit(Kind.ALLREDUCE, [tensor], flag, parameters).wait()
        change = flag[0]
    if change == _FAILED:
        error, _flags.error = _flags.error, None
        text = broadcast_object(str(error), 0, "farandole.elastic.error") if world.size() > 1 else ""
        raise error or ArgumentTypeError(f"rank 0 cannot keep this commit outside of the ranks: {text}")
    if change:
        raise HostsUpdatedInterrupt(skip_sync=change == _LEAVING)


def _on_signal(_signum: int, _frame: FrameType | None) -> None:
    _flags.leaving = True
