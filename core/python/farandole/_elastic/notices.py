"""Notices to leave: SIGTERM of a scheduler, say, before a spot instance goes. All ranks see one at the same commit.

The signal only sets a flag. Each commit adds up the flags of all ranks in a collective of eight bytes, so either all
ranks of a world raise HostsUpdatedInterrupt there, or none.
"""

from __future__ import annotations

import signal
import threading
from array import array
from types import FrameType

from farandole._api.errors import HostsUpdatedInterrupt
from farandole._api.ops import Kind, ReduceOp
from farandole._runtime.native import core
from farandole._start import world

_INT64 = 5  # see DType
_LEAVING = 1


class _Flags:
    """The notices that this process has had."""

    def __init__(self) -> None:
        self.leaving = False


_flags = _Flags()


def is_leaving() -> bool:
    """Returns whether this process has been told to leave."""
    return _flags.leaving


def watch() -> None:
    """Take SIGTERM as a notice from now on, unless the program handles it itself, or this is not its main thread."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_signal)


def unwatch() -> None:
    """SIGTERM ends this process again."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is _on_signal:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def check() -> None:
    """Raise HostsUpdatedInterrupt on every rank where any rank has been told to leave. Collective, of eight bytes."""
    if world.size() == 1:
        told = _LEAVING if _flags.leaving else 0
    else:
        flag = array("q", [_LEAVING if _flags.leaving else 0])
        address = flag.buffer_info()[0]
        tensor = address, address, _INT64, (1,)
        parameters = "farandole.elastic.notice", int(ReduceOp.MAX), 0, 1.0, 1.0, 0
        core.submit(Kind.ALLREDUCE, [tensor], flag, parameters).wait()
        told = flag[0]
    if told:
        raise HostsUpdatedInterrupt(skip_sync=True)


def _on_signal(_signum: int, _frame: FrameType | None) -> None:
    _flags.leaving = True
