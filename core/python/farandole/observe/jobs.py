"""Finds the jobs of this user on this host by the files of their ranks' flight recorders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from farandole.observe import recorders
from farandole.observe.processes import is_alive
from farandole.observe.records import Recording, Wanted


class InspectionError(ValueError):
    """There is no such job, or more than one. The message is one sentence for the user."""


@dataclass(frozen=True)
class Job:
    """The recordings of one job, by rank."""

    run: str
    recordings: tuple[Recording, ...]

    @property
    def epoch(self) -> int:
        """The number of the epoch of an elastic job."""
        return self.recordings[0].epoch

    @property
    def late_ns(self) -> int:
        """The time at which one of its ranks last showed a sign of life."""
        return max(recording.late_ns for recording in self.recordings)

    @property
    def pids(self) -> set[int]:
        """The processes of its ranks."""
        return {recording.pid for recording in self.recordings}


def find(base: Mapping[str, str], run: str = "", wanted: Wanted | None = None) -> list[Job]:
    """Return all jobs, or those whose name begins with `run`. Jobs with the latest signs of life come first.

    Files that cannot be read are left out. Without `wanted`, the recordings have no operations, because there may be
    many files, and ranks go on while they are read.
    """
    paths = recorders.paths(recorders.folders(base.get(recorders.VARIABLE, "")), run)
    found = recorders.outlines(paths).values() if wanted is None else recorders.read_all(paths, wanted)
    by_run: dict[str, list[Recording]] = {}
    for each in found:
        by_run.setdefault(each.run, []).append(each)
    jobs = [Job(name, of_last_epoch(recordings)) for name, recordings in by_run.items()]
    return sorted(jobs, key=lambda job: -job.late_ns)


def of_last_epoch(recordings: Sequence[Recording]) -> tuple[Recording, ...]:
    """Return the recordings of each job's last epoch, by rank. Of two processes with one rank, the later one counts.

    The last epoch is that with the latest sign of life, which need not have the largest number: a job that is started
    again with the same key begins at 0, while files of its earlier, dead ranks may remain.
    """
    by_age = sorted(recordings, key=lambda each: each.late_ns)
    epochs = {each.run: each.epoch for each in by_age}
    ranks = {each.rank: each for each in by_age if each.epoch == epochs[each.run]}
    return tuple(ranks[rank] for rank in sorted(ranks))


def choose(jobs: Sequence[Job], wanted: str, is_alive: Callable[[Recording], bool] = is_alive) -> Job:
    """Return the job that `wanted` names by the beginning of its name or a rank's pid, or else the only running one.

    Raises InspectionError.
    """
    if not jobs:
        raise InspectionError(
            "no rank of yours has a flight recorder on this host; run farandole inspect on the host of a rank, as its "
            f"user, and with {recorders.VARIABLE} as the job has it."
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
