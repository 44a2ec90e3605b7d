"""The record of what ran when: one Chrome trace for each rank, started and stopped at run time."""

from __future__ import annotations

import os

from farandole._runtime import recording
from farandole._start import world


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Record what operations do, on this rank, to a file.

    The file is a Chrome trace, complete JSON at any time, which https://ui.perfetto.dev opens. Each operation is there
    with its phases: NEGOTIATE, until all ranks have come to it; QUEUE, until its data begins to move; and its own,
    ALLREDUCE say. The recorder never waits for a slow file system: it leaves events out, and the trace says how many.

    Any rank may call it at any time. FARANDOLE_TIMELINE, or `farandole run --timeline-filename`, begin it in `init`. It
    goes on when an elastic job changes its ranks, until `stop_timeline`, `shutdown` or the end of the program.

    Args:
        file_path: where to. With several ranks each inserts its own, the one that it had at the start: "trace.json"
            becomes "trace.rank0.json". The path itself leads to the file of rank 0, until `farandole timeline` replaces
            it by a trace of all ranks.
        mark_cycles: also mark where operations were agreed on together.

    Raises:
        ValueError: the file cannot be made, or a timeline is being recorded.
        NotInitializedError: before `init`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     hvd.start_timeline(f"{folder}/trace.json")
        ...     hvd.stop_timeline()
    """
    path = os.fspath(file_path)
    if world.joins() >= 0:
        recording.begin_later(path, bool(mark_cycles))
    else:
        recording.begin(path, bool(mark_cycles), world.track())


def stop_timeline() -> None:
    """End the record; `shutdown` does, too. Waits for the last of it to be written: 5 s at most.

    Raises:
        ValueError: none is being recorded.
        NotInitializedError: before `init`.

    Example:
        >>> hvd.stop_timeline()
        Traceback (most recent call last):
        ValueError: no timeline is being recorded; start_timeline(file_path) begins one
    """
    world.rank()
    was_recorded = recording.end()
    if not was_recorded:
        raise ValueError("no timeline is being recorded; start_timeline(file_path) begins one")
