"""Reads the flight recorders of one job's ranks on this host repeatedly, at little cost."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from farandole.observe import jobs, processes, recorders
from farandole.observe.diagnosis import Rank
from farandole.observe.processes import Activity
from farandole.observe.records import Operation, RecordError, Recording, Wanted

_KEPT = 4096  # operations in memory, of all ranks
_READ = 1024  # new operations in one look, of all ranks
_FEWEST = 32  # operations of a rank
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LOOK_EVERY_S = 1.0  # at the activity of processes
_FOLDERS_EVERY_S = 1.0

IsOfJob = Callable[[Recording], bool]


class Tail:
    """One recorder's file, with the operations read so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._operations: dict[int, Operation] = {}
        self._epoch = 0

    def read(self, ranks: int, room: recorders.Room) -> Recording:
        """Return the rank's latest operations, fewer if there are more ranks. Raises OSError, RecordError."""
        pending = {number for number, each in self._operations.items() if each.ended_ns is None}
        last = max(self._operations, default=-1)
        recording = recorders.read(self._path, Wanted(last + 1, max(_FEWEST, _READ // ranks), pending), room)
        if recording.epoch != self._epoch or recording.begun < last:
            self._operations, self._epoch = {}, recording.epoch
            return self.read(ranks, room)
        for number in pending:  # the ring has wrapped around since
            self._operations.pop(number)
        self._operations |= {each.number: each for each in recording.operations}
        kept = sorted(self._operations)[-max(_FEWEST, _KEPT // ranks) :]
        waits = [number for number, each in self._operations.items() if each.ended_ns is None]
        self._operations = {number: self._operations[number] for number in sorted({*kept, *waits})}
        return replace(recording, operations=tuple(self._operations.values()))


class Tails:
    """All ranks of a job on this host. `is_of_job` decides by a file's content whether it belongs to the job.

    `names` are the beginnings of the files' names, if known.
    """

    def __init__(self, base: Mapping[str, str], is_of_job: IsOfJob, names: str = "") -> None:
        self._folders, self._is_of_job, self._names = (
            recorders.folders(base.get(recorders.VARIABLE, "")),
            is_of_job,
            names,
        )
        self._room = recorders.Room()
        self._tails: dict[tuple[Path, int], Tail] = {}
        self._strangers: set[tuple[Path, int]] = set()
        self._looks: dict[int, processes.Look] = {}
        self._activities: dict[int, Activity] = {}
        self._listed_s = self._looked_s = float("-inf")

    def look(self) -> list[Rank]:
        """Return the present state of the ranks, by rank; none while no rank has a recorder."""
        now_s = time.monotonic()
        if now_s - self._listed_s >= _FOLDERS_EVERY_S:
            self._listed_s = now_s
            self._list()
        found = []
        for tail in self._tails.values():
            with contextlib.suppress(OSError, RecordError):
                found.append(tail.read(len(self._tails), self._room))
        recordings = jobs.of_last_epoch(found)
        if now_s - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s = now_s
            self._look_at(recordings)
        return [
            Rank(each, self._activities.get(each.pid, Activity.UNKNOWN), memory_of(each.pid), self._looks.get(each.pid))
            for each in recordings
        ]

    def _list(self) -> None:
        found = {}
        for path in recorders.paths(self._folders, self._names):
            with contextlib.suppress(OSError):
                found[path, path.stat().st_ino] = path
        self._tails = {key: tail for key, tail in self._tails.items() if key in found}
        self._strangers &= set(found)
        new = {path: key for key, path in found.items() if key not in self._tails and key not in self._strangers}
        for path, recording in recorders.outlines(new).items():
            if self._is_of_job(recording):
                self._tails[new[path]] = Tail(path)
            else:
                self._strangers.add(new[path])

    def _look_at(self, recordings: Sequence[Recording]) -> None:
        looks = {each.pid: processes.look(each, time.monotonic_ns()) for each in recordings}
        self._activities = {
            pid: processes.activity(self._looks[pid], look)
            if pid in self._looks
            else (Activity.GONE if look.is_gone else Activity.UNKNOWN)
            for pid, look in looks.items()
        }
        self._looks = looks


def pause_s(spent_s: float, share: float, least_s: float, most_s: float) -> float:
    """Return the pause until the next look, so that looks cost at most `share` of all processors."""
    return min(most_s, max(least_s, spent_s / (share * len(os.sched_getaffinity(0)))))


def memory_of(pid: int) -> int:
    """Return the resident memory of a process in bytes, or 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def descends(pid: int, ancestor: int) -> bool:
    """Return whether `ancestor` has started a process, directly or through others."""
    import psutil

    try:
        return ancestor in (each.pid for each in psutil.Process(pid).parents())
    except psutil.Error:
        return False
