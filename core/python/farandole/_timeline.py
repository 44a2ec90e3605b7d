"""The record of what ran when, which Horovod's users start and stop at run time. There is none yet."""

from __future__ import annotations

_NOT_YET = (
    "this version of farandole records no timeline yet: leave {} out. The profiler of the framework shows the calls, "
    "`farandole bench` what collectives cost"
)


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Begin to record to a file; refused for now. Raises ValueError, as Horovod does where no timeline can be."""
    raise ValueError(_NOT_YET.format(f"start_timeline({file_path!r})"))


def stop_timeline() -> None:
    """End the record; refused for now. Raises ValueError."""
    raise ValueError(_NOT_YET.format("stop_timeline()"))
