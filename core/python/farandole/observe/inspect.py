"""`farandole inspect`: look at the ranks, diagnose, print."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from farandole.observe import jobs, processes, stacks
from farandole.observe.diagnosis import Diagnosis, Rank, diagnose
from farandole.observe.records import Operation, Wanted

_MOST_STACKS = 16  # ranks whose stacks are shown, the culprits first
_AT_ONCE = 4
_MOST_EPOCHS = 3  # that an elastic job may begin while its ranks are examined
_WANTED = Wanted(most=512)  # operations of a rank, beside those in flight
_MOST_PENDING = 3  # operations in flight of a rank, in the text
_MOST_RECENT = 16  # operations of a rank, in the JSON

Stacks = Mapping[int, "list[stacks.Thread] | str"]  # by rank; or a text that says why there are none


def inspect(
    base: Mapping[str, str],
    wanted: str,
    *,
    as_json: bool = False,
    with_stacks: bool = True,
    native: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str, str]:
    """Return the text to print, and a hint about what is missing. Raises InspectionError."""
    job = jobs.choose(jobs.find(base), wanted)
    ranks, now_ns = _examine(base, job, sleep)
    found = diagnose(ranks, now_ns)
    py_spy = stacks.program() if with_stacks else None
    of_ranks = _stacks(ranks, found, py_spy, native) if py_spy else {}
    form = as_json_text if as_json else as_text
    lacks_stacks = with_stacks and not py_spy and any(rank.activity is not processes.Activity.GONE for rank in ranks)
    return form(job.run, found, ranks, of_ranks, now_ns), stacks.HINT if lacks_stacks else ""


def _examine(base: Mapping[str, str], job: jobs.Job, sleep: Callable[[float], None]) -> tuple[list[Rank], int]:
    """Return the ranks and their activities, and the time at which reading their files began.

    The files are read last and in quick succession, because what the ranks do meanwhile would look like a difference
    between them. Ranks whose files have disappeared by then have left in good order.
    """
    for _ in range(_MOST_EPOCHS):
        before = {each.pid: processes.look(each, time.monotonic_ns()) for each in job.recordings}
        if not all(look.is_gone for look in before.values()):
            sleep(processes.LOOK_S)
        after = {each.pid: processes.look(each, time.monotonic_ns()) for each in job.recordings}
        now_ns, former = time.monotonic_ns(), job
        job = jobs.choose(jobs.find(base, job.run, _WANTED), job.run)
        ranks = [
            Rank(each, processes.activity(before[each.pid], after[each.pid]))
            for each in job.recordings
            if each.pid in before
        ]
        if ranks and job.epoch == former.epoch:  # otherwise the ranks belong to two epochs
            break
    return ranks or list(map(Rank, job.recordings)), now_ns


def _stacks(ranks: list[Rank], found: Diagnosis, py_spy: str, native: bool) -> Stacks:
    """Return the stacks of the blamed ranks first, then of others, up to the limit."""
    alive = [rank for rank in ranks if rank.activity is not processes.Activity.GONE]
    chosen = sorted(alive, key=lambda rank: (rank.number not in found.culprits, rank.number))[:_MOST_STACKS]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = pool.map(lambda rank: stacks.of(rank.recording.pid, py_spy, native), chosen)
        return {rank.number: answer for rank, answer in zip(chosen, answers, strict=True)}


# ---- what is printed; pure


def as_text(run: str, diagnosis: Diagnosis, ranks: Sequence[Rank], found: Stacks, now_ns: int) -> str:
    """Return the sentence, and then each rank with its operations and stacks."""
    size = ranks[0].recording.size
    lines = [f"{diagnosis.sentence}.", "", f"job {run}: {len(ranks)} of {size} ranks on this host"]
    for rank in ranks:
        lines += ["", *_of_rank(rank, now_ns)]
        threads = found.get(rank.number)
        if threads:
            lines += ["  " + line for line in ([threads] if isinstance(threads, str) else stacks.lines(threads))]
    return "\n".join(lines)


def _of_rank(rank: Rank, now_ns: int) -> list[str]:
    recording = rank.recording
    does = f": {rank.activity.value}" if rank.activity.value else ""
    lines = [f"rank {rank.number} (pid {recording.pid}, {recording.begun} operations){does}"]
    pending = rank.pending
    for operation in pending[:_MOST_PENDING]:
        lines.append(f"  in {_line(operation)} for {(now_ns - operation.submitted_ns) / 1e9:.1f} s")
    if len(pending) > _MOST_PENDING:
        lines.append(f"  and in {len(pending) - _MOST_PENDING} more")
    if not pending and rank.last is not None and rank.last.ended_ns is not None:
        lines.append(f"  after {_line(rank.last)}, which ended {(now_ns - rank.last.ended_ns) / 1e9:.1f} s ago")
    if recording.reason:
        lines.append(f"  ended: {recording.reason}")
    return lines


def _line(operation: Operation) -> str:
    of = f", {operation.dtype} {operation.shapes}" if operation.shapes else ""
    return f"{operation.title}{operation.place}{of}"


def as_json_text(run: str, diagnosis: Diagnosis, ranks: Sequence[Rank], found: Stacks, now_ns: int) -> str:
    """Return the same as JSON for programs. Times are seconds before now."""
    document = {
        "job": run,
        "size": ranks[0].recording.size,
        "kind": diagnosis.kind.value,
        "sentence": diagnosis.sentence,
        "culprits": list(diagnosis.culprits),
        "waiting": list(diagnosis.waiting),
        "waited_s": round(diagnosis.waited_s, 3),
        "ranks": [_rank(rank, found.get(rank.number), now_ns) for rank in ranks],
    }
    return json.dumps(document, indent=2)


def _rank(rank: Rank, threads: list[stacks.Thread] | str | None, now_ns: int) -> dict[str, object]:
    recording = rank.recording
    recent = recording.operations[-_MOST_RECENT:]
    pending = [operation for operation in rank.pending if operation not in recent]
    return {
        "rank": rank.number,
        "pid": recording.pid,
        "state": recording.state.name.lower(),
        "activity": rank.activity.name.lower(),
        "begun": recording.begun,
        "lost": recording.lost,
        "reason": recording.reason,
        "operations": [_operation(operation, now_ns) for operation in [*pending, *recent]],
        "stacks": [asdict(thread) for thread in threads] if isinstance(threads, list) else [],
        "no_stacks": threads if isinstance(threads, str) else "",
    }


def _operation(operation: Operation, now_ns: int) -> dict[str, object]:
    fields = asdict(operation)
    for name in ("submitted", "agreed", "started", "ended"):
        at_ns = fields.pop(f"{name}_ns")
        fields[f"{name}_s_ago"] = None if at_ns is None else round((now_ns - at_ns) / 1e9, 6)
    return fields
