"""`farandole inspect`: look at the ranks, diagnose, print."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from farandole.observe import diagnosis, jobs, processes, show, stacks
from farandole.observe.records import Recording, Wanted

_MOST_STACKS = 16  # ranks of which stacks are shown; the culprits' come first
_AT_ONCE = 4
_MOST_EPOCHS = 3  # that an elastic job may begin during the look
_MOST_OPERATIONS = 512  # of a rank, beside those in flight


def inspect(
    base: Mapping[str, str],
    wanted: str,
    *,
    as_json: bool = False,
    with_stacks: bool = True,
    native: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str, str]:
    """The text to print, and a hint about what is missing. Raises InspectionError."""
    job = jobs.choose(jobs.find(base), wanted, _is_alive)
    ranks, now_ns = _examine(base, job, sleep)
    found = diagnosis.diagnose(ranks, now_ns)
    py_spy = stacks.program() if with_stacks else None
    of_ranks = _stacks(ranks, found, py_spy, native) if py_spy else {}
    form = show.as_json if as_json else show.as_text
    lacks_stacks = with_stacks and not py_spy and any(rank.activity is not diagnosis.Activity.GONE for rank in ranks)
    return form(job.run, found, ranks, of_ranks, now_ns), stacks.HINT if lacks_stacks else ""


def _examine(
    base: Mapping[str, str], job: jobs.Job, sleep: Callable[[float], None]
) -> tuple[list[diagnosis.Rank], int]:
    """The ranks with what their processes do, and the time at which their files began to be read.

    Their files are read last, one right after the other: what the ranks do meanwhile would look like a difference
    between them.
    """
    for _ in range(_MOST_EPOCHS):
        ranks, now_ns, now = _examine_once(base, job, sleep)
        if now.epoch == job.epoch:
            break
        job = now
    return ranks, now_ns


def _examine_once(
    base: Mapping[str, str], job: jobs.Job, sleep: Callable[[float], None]
) -> tuple[list[diagnosis.Rank], int, jobs.Job]:
    """The same, and the job as it is then: where that is in another epoch, these ranks are of both."""
    before = [processes.look(recording, time.monotonic_ns()) for recording in job.recordings]
    if not all(look.is_gone for look in before):
        sleep(processes.LOOK_S)
    after = [processes.look(recording, time.monotonic_ns()) for recording in job.recordings]
    now_ns = time.monotonic_ns()
    now = jobs.choose(jobs.find(base, job.run, Wanted(most=_MOST_OPERATIONS)), job.run, _is_alive)
    latest = {recording.pid: recording for recording in now.recordings}
    looks = zip(job.recordings, before, after, strict=True)
    ranks = [
        diagnosis.Rank(latest.get(recording.pid, recording), processes.activity(first, second))
        for recording, first, second in looks
        if recording.pid in latest or not second.is_gone  # else it has left in good order meanwhile
    ]
    return ranks, now_ns, now


def _is_alive(recording: Recording) -> bool:
    return not processes.look(recording, time.monotonic_ns()).is_gone


def _stacks(ranks: list[diagnosis.Rank], found: diagnosis.Diagnosis, py_spy: str, native: bool) -> show.Stacks:
    """Of the culprits first, then of others, as many as one can read."""
    alive = [rank for rank in ranks if rank.activity is not diagnosis.Activity.GONE]
    chosen = sorted(alive, key=lambda rank: (rank.number not in found.culprits, rank.number))[:_MOST_STACKS]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = pool.map(lambda rank: stacks.of(rank.recording.pid, py_spy, native), chosen)
        return {rank.number: answer for rank, answer in zip(chosen, answers, strict=True)}
