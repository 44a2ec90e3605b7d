"""Finds out what a process does from /proc, without sending it a signal or stopping it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from farandole.observe.records import Recording

LOOK_S = 0.25  # between two looks at the times of a process
_COMPUTES_FROM = 0.5  # share of a processor
_QUEUES_FROM = 0.5


class Activity(Enum):
    """What a process does, as far as the kernel tells."""

    GONE = "its process has ended"
    STOPPED = "it is stopped by a signal or a debugger"
    COMPUTING = "it computes"
    NOT_SCHEDULED = "it is not scheduled: others use its processors"
    ON_STORAGE = "it waits for storage, or swaps"
    SLEEPING = "it sleeps"
    UNKNOWN = ""


@dataclass(frozen=True)
class Look:
    """A snapshot of a process: its threads' states, and their times in nanoseconds."""

    states: str  # a letter for each thread, see proc(5); "" if the process is gone
    run_ns: int = 0
    queued_ns: int = 0  # ready to run while others ran
    at_ns: int = 0

    @property
    def is_gone(self) -> bool:
        """Return whether the process is gone, or has ended and waits for its parent."""
        return not self.states or set(self.states) <= {"Z", "X"}


def look(recording: Recording, now_ns: int) -> Look:
    """Look at the rank's process. A later process with its pid does not count."""
    folder = Path(f"/proc/{recording.pid}")
    try:
        fields, threads = _stat_of(recording), os.listdir(folder / "task")
    except OSError:
        return Look("")
    if not fields:
        return Look("")
    states, run_ns, queued_ns = fields[0] if not threads else "", 0, 0
    for thread in threads:
        try:
            states += _after_name((folder / "task" / thread / "stat").read_text(errors="replace"))[0]
            run, queued = (folder / "task" / thread / "schedstat").read_text().split()[:2]
        except (OSError, IndexError, ValueError):  # it has just ended, or the kernel does not count these times
            continue
        run_ns, queued_ns = run_ns + int(run), queued_ns + int(queued)
    return Look(states, run_ns, queued_ns, now_ns)


def activity(before: Look, after: Look) -> Activity:
    """Return what a process did between two looks."""
    if after.is_gone:
        return Activity.GONE
    if set(after.states) & {"T", "t"}:
        return Activity.STOPPED
    passed = max(after.at_ns - before.at_ns, 1)
    computed, queued = (after.run_ns - before.run_ns) / passed, (after.queued_ns - before.queued_ns) / passed
    if queued >= _QUEUES_FROM and queued > computed:
        return Activity.NOT_SCHEDULED
    if computed >= _COMPUTES_FROM:
        return Activity.COMPUTING
    if "D" in after.states and "D" in before.states:
        return Activity.ON_STORAGE
    return Activity.SLEEPING


def is_alive(recording: Recording) -> bool:
    """Return whether the rank's process still runs. Faster than a look."""
    fields = _stat_of(recording)
    return bool(fields) and (fields[0] not in "ZX" or not look(recording, time.monotonic_ns()).is_gone)


def _stat_of(recording: Recording) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on, or none if the rank's process is gone."""
    try:
        fields = _after_name(Path(f"/proc/{recording.pid}/stat").read_text(errors="replace"))
        return fields if int(fields[19]) == recording.process_start else []
    except (OSError, IndexError, ValueError):
        return []


def _after_name(stat: str) -> list[str]:
    """Return the fields from the state on. The name before them may contain blanks and brackets."""
    return stat[stat.rindex(")") + 1 :].split()
