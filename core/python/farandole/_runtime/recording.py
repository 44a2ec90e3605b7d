"""The beginning and end of a rank's timeline."""

from __future__ import annotations

import os
import socket
import time
from functools import partial
from typing import TYPE_CHECKING

from farandole._runtime.native import core
from farandole._runtime.trace_names import path_of, shown

if TYPE_CHECKING:
    from farandole._runtime.remote import Upload

_PATIENCE_S = 20.0  # for the last of what goes to a URL
_LOCAL = ("file://", "local://")

_uploads: list[Upload] = []  # of this process, or of the one that it was forked from


def begin(path: str, rank: int, size: int, run: str, offset_ns: int, mark_cycles: bool) -> None:
    """Record to this rank's file, see `start_timeline`; `run` is the same on all ranks. Raises ValueError."""
    title = f"rank {rank} ({socket.gethostname()}, pid {os.getpid()})"
    title += f" of run {run}" if run else ""  # by which `farandole timeline` knows what belongs together
    own = path_of(path, rank, size)
    for prefix in _LOCAL:
        own = own.removeprefix(prefix)
    start = partial(core.start_timeline, title=title, offset_ns=offset_ns, marks_batches=mark_cycles)
    if "://" not in own:
        start(own)
        return
    from farandole._runtime.remote import Upload  # with logging and subprocess, which `import farandole` does without

    _uploads[:] = [each for each in _uploads if each.process_id == os.getpid() and not each.is_over]
    for each in _uploads:
        if not each.is_closing:
            where = shown(each.url)
            raise ValueError(f"a timeline is being recorded to '{where}'; call stop_timeline() first")
    _uploads.append(Upload(own, start))


def close() -> None:
    """The core has ended the timeline, if there was one. The rest for a URL is sent meanwhile."""
    for each in _uploads:
        if each.process_id == os.getpid() and not each.is_closing:
            each.close()


def wait() -> None:
    """Wait until all has been sent, but not for long."""
    until = time.monotonic() + _PATIENCE_S
    for each in _uploads:
        if each.process_id == os.getpid():
            each.wait(until)
