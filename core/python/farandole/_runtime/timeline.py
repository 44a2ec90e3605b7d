"""The record of what ran when: one Chrome trace for each rank, started and stopped at run time."""

from __future__ import annotations

import os

from farandole._runtime import recording
from farandole._runtime.native import core
from farandole._start import world


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Begin to record what operations do, on this rank, to a file.

    The file is a trace of Chrome, which https://ui.perfetto.dev opens; `farandole timeline` makes one of those of all
    ranks. It is complete JSON at any time. Each operation is there with its phases: NEGOTIATE, until all ranks have
    come to it; QUEUE, until its data begins to move; and its own, ALLREDUCE say. The recorder never waits
    for a slow file system: it leaves events out, and the trace says how many.

    Any rank may call it at any time. FARANDOLE_TIMELINE, or `farandole run --timeline-filename`, begin it in `init`.

    Args:
        file_path: where to; with several ranks each inserts its own: "trace.json" becomes "trace.rank0.json". Also a
            URL of fsspec, such as "s3://bucket/trace.json", which gets what there is every 10 seconds and at the end.
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
    recording.begin(path, world.rank(), world.size(), world.run(), world.clock_offset_ns(), bool(mark_cycles))


def stop_timeline() -> None:
    """End the record; `shutdown` does, too. Waits for the last of it to be written: 5 s at most, or 20 s for a URL.

    Raises:
        ValueError: none is being recorded.
        NotInitializedError: before `init`.

    Example:
        >>> hvd.stop_timeline()
        Traceback (most recent call last):
        ValueError: no timeline is being recorded; start_timeline(file_path) begins one
    """
    world.rank()
    was_recorded = core.stop_timeline()
    recording.close()
    recording.wait()
    if not was_recorded:
        raise ValueError("no timeline is being recorded; start_timeline(file_path) begins one")
