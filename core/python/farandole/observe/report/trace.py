"""Reads the operations of a run from the events of its timeline. Pure."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from farandole.observe.records import Operation

_PHASES = {"NEGOTIATE": "agreed_ns", "QUEUE": "started_ns"}  # the moment at the end of each


class TraceError(ValueError):
    """The events are not those of a run that can be analysed; the message is one sentence."""


@dataclass(frozen=True)
class Epoch:
    """The operations of a world by rank, in the order in which they began. Ranks are named by their member numbers."""

    ranks: dict[int, list[Operation]]

    @property
    def begin_ns(self) -> int:
        """The time at which the first operation began."""
        return min(operations[0].submitted_ns for operations in self.ranks.values())

    @property
    def end_ns(self) -> int:
        """The time at which the last operation ended."""
        return max(each.ended_ns or 0 for operations in self.ranks.values() for each in operations)


@dataclass(frozen=True)
class Run:
    """The worlds that have operations, in order. Only elastic jobs have more than one."""

    epochs: tuple[Epoch, ...]
    unended: int = 0  # operations without an end, such as those of a killed rank


def read(events: Iterable[str]) -> Run:
    """Read the events of all ranks, which are in order for each rank. Other events are ignored. Raises TraceError."""
    epoch_of: dict[object, int] = defaultdict(int)  # by rank
    begun: dict[tuple[int, str, str], Operation] = {}
    epochs: dict[int, dict[int, list[Operation]]] = defaultdict(lambda: defaultdict(list))
    for text in events:
        event = json.loads(text)
        if event.get("ph") == "i" and isinstance(number := (event.get("args") or {}).get("epoch"), int):
            epoch_of[event.get("pid")] = number  # the rank has entered a later world of an elastic job
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
    """Sort the operations by time and number the uses of each name: the n-th use is the same operation on all ranks.

    If the ranks have used a name a different number of times, the numbers differ by rank, so that uses are not matched,
    unless their times show that they belong together: a killed rank has recorded fewer.
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
    """Return whether all ranks used a name equally often, or each use began on all ranks before it ended on any."""
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
