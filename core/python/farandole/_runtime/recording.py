"""Beginning a rank's timeline."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from farandole._runtime.native import core


def begin(path: str, rank: int, size: int, run: str, offset_ns: int, mark_cycles: bool) -> None:
    """Record to this rank's file, see `start_timeline`; `run` is the same on all ranks. Raises ValueError."""
    title = f"rank {rank} ({socket.gethostname()}, pid {os.getpid()})"
    title += f" of run {run}" if run else ""  # by which `farandole timeline` knows what belongs together
    core.start_timeline(path_of(path, rank, size), title, offset_ns, mark_cycles)


def path_of(path: str, rank: int, size: int) -> str:
    """The file of one rank. Raises ValueError for what names no file."""
    if not Path(path).name or "\0" in path:
        raise ValueError(f"a timeline needs the name of a file, such as 'trace.json', not {path!r}")
    if size == 1:
        return path
    whole = Path(path)
    return str(whole.with_name(f"{whole.stem}.rank{rank}{whole.suffix}"))
