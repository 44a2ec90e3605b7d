"""`farandole inspect`: look at the ranks, diagnose, print."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from farandole.observe import diagnosis, jobs, processes, show, stacks
from farandole.observe.records import Wanted

_MOST_STACKS = 16  # ranks of which stacks are shown; the culprits' come first
_AT_ONCE = 4
_MOST_EPOCHS = 3  # that an elastic job may begin during the look
_WANTED = Wanted(most=512)  # operations of a rank, beside those in flight


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
    job = jobs.choose(jobs.find(base), wanted)
    ranks, now_ns = _examine(base, job, sleep)
    found = diagnosis.diagnose(ranks, now_ns)
    py_spy = stacks.program() if with_stacks else None
    of_ranks = _stacks(ranks, found, py_spy, native) if py_spy else {}
    form = show.as_json if as_json else show.as_text
    lacks_stacks = with_stacks and not py_spy and any(rank.activity is not processes.Activity.GONE for rank in ranks)
    return form(job.run, found, ranks, of_ranks, now_ns), stacks.HINT if lacks_stacks else ""


def _examine(
    base: Mapping[str, str], job: jobs.Job, sleep: Callable[[float], None]
) -> tuple[list[diagnosis.Rank], int]:
    """The ranks with what their processes do, and the time at which their files began to be read.

    Their files are read last, one right after the other: what the ranks do meanwhile would look like a difference
    between them. Ranks whose files are gone by then have left in good order.
    """
    for _ in range(_MOST_EPOCHS):
        before = {each.pid: processes.look(each, time.monotonic_ns()) for each in job.recordings}
        if not all(look.is_gone for look in before.values()):
            sleep(processes.LOOK_S)
        after = {each.pid: processes.look(each, time.monotonic_ns()) for each in job.recordings}
        now_ns, former = time.monotonic_ns(), job
        job = jobs.choose(jobs.find(base, job.run, _WANTED), job.run)
        ranks = [
            diagnosis.Rank(each, processes.activity(before[each.pid], after[each.pid]))
            for each in job.recordings
            if each.pid in before
        ]
        if ranks and job.epoch == former.epoch:  # else these ranks are of two epochs
            break
    return ranks or list(map(diagnosis.Rank, job.recordings)), now_ns


def _stacks(ranks: list[diagnosis.Rank], found: diagnosis.Diagnosis, py_spy: str, native: bool) -> show.Stacks:
    """Of the culprits first, then of others, as many as one can read."""
    alive = [rank for rank in ranks if rank.activity is not processes.Activity.GONE]
    chosen = sorted(alive, key=lambda rank: (rank.number not in found.culprits, rank.number))[:_MOST_STACKS]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = pool.map(lambda rank: stacks.of(rank.recording.pid, py_spy, native), chosen)
        return {rank.number: answer for rank, answer in zip(chosen, answers, strict=True)}
