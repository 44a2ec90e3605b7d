"""The output of `farandole inspect`. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from farandole.observe import stacks
from farandole.observe.diagnosis import Diagnosis, Rank
from farandole.observe.records import Operation

_MOST_PENDING = 3  # operations in flight, of a rank in the text
_MOST_RECENT = 16  # operations of a rank in the JSON

Stacks = Mapping[int, "list[stacks.Thread] | str"]  # by rank; a text says why there are none


def as_text(run: str, diagnosis: Diagnosis, ranks: Sequence[Rank], found: Stacks, now_ns: int) -> str:
    """The sentence, then each rank with what it is in and its stacks."""
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


def as_json(run: str, diagnosis: Diagnosis, ranks: Sequence[Rank], found: Stacks, now_ns: int) -> str:
    """The same for programs. Times are seconds before now."""
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
