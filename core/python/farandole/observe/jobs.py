"""The jobs of this user on this host: the files of their ranks' flight recorders."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from farandole.observe.records import (
    ALL,
    COPIES,
    HEADER_BYTES,
    RecordError,
    Recording,
    TornError,
    Wanted,
    parse,
)

_VARIABLE = "FARANDOLE_FLIGHT_RECORDER"
_LOOKS = 5  # at a file that changes
_MOST_BYTES = 64 << 20  # of a file; a recorder's has half a megabyte
_OUTLINE = Wanted(most=0)


class InspectionError(ValueError):
    """There is no such job, or not only one; the message is one sentence for the user."""


@dataclass(frozen=True)
class Job:
    """The recordings of one job, by rank."""

    run: str
    recordings: tuple[Recording, ...]

    @property
    def epoch(self) -> int:
        """Which of the epochs of an elastic job it is."""
        return self.recordings[0].epoch

    @property
    def late_ns(self) -> int:
        """When one of its ranks last showed a sign of life."""
        return max(recording.late_ns for recording in self.recordings)

    @property
    def pids(self) -> set[int]:
        """The processes of its ranks."""
        return {recording.pid for recording in self.recordings}


def folders(base: Mapping[str, str]) -> list[Path]:
    """Where recorders of this user make their files, see _start/flight_files.py."""
    given = base.get(_VARIABLE, "")
    if given and given != "0":
        return [Path(given)]
    return [Path(where) / f"farandole-{os.getuid()}" for where in ("/dev/shm", "/tmp")]


def find(base: Mapping[str, str], run: str = "", wanted: Wanted = _OUTLINE) -> list[Job]:
    """All jobs, or those whose name begins so; those with the latest signs of life first.

    Files that cannot be read are left out. By default operations that have ended are, too, since there may be many
    files, and ranks go on while they are read.
    """
    by_run: dict[str, list[Recording]] = {}
    room = Room()
    for folder in folders(base):
        for path in sorted(folder.glob(f"{run}*.flight")):
            recording = _read_or_none(path, wanted, room)
            if recording is not None:
                by_run.setdefault(recording.run, []).append(recording)
    jobs = [Job(run, of_last_epoch(recordings)) for run, recordings in by_run.items()]
    return sorted(jobs, key=lambda job: -job.late_ns)


def of_last_epoch(recordings: Sequence[Recording]) -> tuple[Recording, ...]:
    """The recordings of each job's last epoch, by rank. Of two processes that were one rank the latest stays.

    The last epoch is that of the latest sign of life: its number is not always the largest. A job that is started again
    with the same key begins at 0, and dead ranks of the time before have left their files.
    """
    by_age = sorted(recordings, key=lambda each: each.late_ns)
    epochs = {each.run: each.epoch for each in by_age}
    ranks = {each.rank: each for each in by_age if each.epoch == epochs[each.run]}
    return tuple(ranks[rank] for rank in sorted(ranks))


def choose(jobs: Sequence[Job], wanted: str, is_alive: Callable[[Recording], bool]) -> Job:
    """The job that was named: by the beginning of its name, or the pid of a rank; or else the only one that runs.

    Raises InspectionError.
    """
    if not jobs:
        raise InspectionError(
            "no rank of yours has a flight recorder on this host; run farandole inspect on the host of a rank, as its "
            f"user, and with {_VARIABLE} as the job has it."
        )
    if wanted:
        found = [job for job in jobs if job.run.startswith(wanted) or (wanted.isdigit() and int(wanted) in job.pids)]
        if len(found) != 1:
            what = "no job" if not found else f"{len(found)} jobs"
            has = "has" if len(found) < 2 else "have"
            raise InspectionError(
                f"{what} of yours on this host {has} the name or a rank with the pid {wanted}: {_names(jobs)}."
            )
        return found[0]
    running = [job for job in jobs if any(map(is_alive, job.recordings))]
    if len(running) > 1:
        raise InspectionError(f"{len(running)} jobs of yours run on this host; name one: {_names(running)}.")
    return running[0] if running else jobs[0]


def _names(jobs: Sequence[Job]) -> str:
    return ", ".join(f"{job.run} ({len(job.recordings)} ranks here, pid {min(job.pids)})" for job in jobs[:8])


def _read_or_none(path: Path, wanted: Wanted, room: Room) -> Recording | None:
    try:
        return read(path, wanted, room)
    except (OSError, RecordError):
        return None


class Room:
    """Memory for the copies of a file: new memory for each look would cost more than the look."""

    def __init__(self) -> None:
        self._copies = [bytearray() for _ in range(COPIES)]

    def take(self, descriptor: int, size: int) -> list[bytearray]:
        """Copies of the file, one taken after the other, which are good until the next ones."""
        for place, copy in enumerate(self._copies):
            if len(copy) != size:
                self._copies[place] = copy = bytearray(size)
            if (found := os.preadv(descriptor, [copy], 0)) != size:
                raise RecordError(f"it has {found} bytes, not {size}")
        return self._copies


def read(path: Path, wanted: Wanted = ALL, room: Room | None = None) -> Recording:
    """Read a recorder's file while its rank writes it. Raises OSError, RecordError."""
    room = room or Room()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid() or not HEADER_BYTES <= found.st_size <= _MOST_BYTES:
            raise RecordError("it is another user's, or has no recorder's size")
        for look in range(_LOOKS):
            try:
                return parse(room.take(descriptor, found.st_size), wanted)
            except TornError:
                if look == _LOOKS - 1:
                    raise
        raise AssertionError
    finally:
        os.close(descriptor)
