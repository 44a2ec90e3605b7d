"""The operations of a run, from the events of its timeline. Pure."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from farandole.observe.records import Operation

_PHASES = {"NEGOTIATE": "agreed_ns", "QUEUE": "started_ns"}  # the moment at the end of each


class TraceError(ValueError):
    """The events are of no run that can be judged; the message is one sentence."""


@dataclass(frozen=True)
class Epoch:
    """The operations of a world by rank, in the order in which they began. Ranks have the numbers of their start."""

    ranks: dict[int, list[Operation]]

    @property
    def begin_ns(self) -> int:
        """When the first operation began."""
        return min(operations[0].submitted_ns for operations in self.ranks.values())

    @property
    def end_ns(self) -> int:
        """When the last operation ended."""
        return max(each.ended_ns or 0 for operations in self.ranks.values() for each in operations)


@dataclass(frozen=True)
class Run:
    """The worlds that have operations, in their order: one, but for elastic jobs."""

    epochs: tuple[Epoch, ...]
    unended: int = 0  # operations without an end, as of a rank that was killed


def read(events: Iterable[str]) -> Run:
    """Read the events of all ranks, each rank's in their order; other events are left out. Raises TraceError."""
    epoch_of: dict[object, int] = defaultdict(int)  # by rank
    begun: dict[tuple[int, str, str], Operation] = {}
    epochs: dict[int, dict[int, list[Operation]]] = defaultdict(lambda: defaultdict(list))
    for text in events:
        event = json.loads(text)
        if event.get("ph") == "i" and isinstance(number := (event.get("args") or {}).get("epoch"), int):
            epoch_of[event.get("pid")] = number  # a rank has entered a later world of an elastic job
        if event.get("ph") not in ("b", "e") or not _is_sound(event):
            continue
        rank, kind, name, at_ns = event["pid"], event["cat"], str(event["name"]), round(1000 * event["ts"])
        key = rank, kind, str(event["id"])
        if name in _PHASES:
            if event["ph"] == "e" and key in begun:
                begun[key] = replace(begun[key], **{_PHASES[name]: at_ns})
        elif name == kind.upper():
            continue
        elif event["ph"] == "b":
            given = event.get("args") or {}
            size, of_set = int(given.get("bytes", 0)), int(given.get("process_set", 0))
            begun[key] = Operation(0, kind, name, "", "", of_set, 0, 1, size, "", at_ns)
        elif key in begun:
            epochs[epoch_of[rank]][rank].append(replace(begun.pop(key), ended_ns=at_ns))
    if not epochs:
        raise TraceError("holds no operation that has ended")
    return Run(tuple(Epoch(_counted(epochs[number])) for number in sorted(epochs)), len(begun))


def _counted(ranks: dict[int, list[Operation]]) -> dict[int, list[Operation]]:
    """The same, by time and numbered: the n-th use of a name on one rank is that on the others.

    Names that the ranks have used unequally often get numbers that differ by rank, unless they tell themselves that the
    uses belong together: a rank that is killed has recorded fewer.
    """
    uses: dict[tuple[object, ...], dict[int, list[Operation]]] = defaultdict(lambda: defaultdict(list))
    for rank, operations in ranks.items():
        for each in sorted(operations, key=lambda each: each.submitted_ns):
            uses[each.process_set, each.kind, each.name][rank].append(each)
    counted: dict[int, list[Operation]] = defaultdict(list)
    for by_rank in uses.values():
        belong = _belong_together(list(by_rank.values()))
        for rank, operations in by_rank.items():
            first = 0 if belong else (rank + 1) << 32
            counted[rank] += [replace(each, count=first + number) for number, each in enumerate(operations)]
    return {rank: sorted(counted[rank], key=lambda each: each.submitted_ns) for rank in sorted(counted)}


def _belong_together(ranks: Sequence[Sequence[Operation]]) -> bool:
    """True where all have used a name equally often, or each use began everywhere before it ended anywhere."""
    if len(Counter(map(len, ranks))) == 1:
        return True
    return all(
        max(each.submitted_ns for each in together) <= min(each.ended_ns or 0 for each in together)
        for together in zip(*ranks, strict=False)
    )


def _is_sound(event: dict[str, Any]) -> bool:
    return (
        isinstance(event.get("pid"), int)
        and isinstance(event.get("cat"), str)
        and isinstance(event.get("ts"), int | float)
        and "id" in event
        and "name" in event
    )
