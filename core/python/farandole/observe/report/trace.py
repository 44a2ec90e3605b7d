"""The operations of a run, from the events of its timeline. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

_PHASES = ("NEGOTIATE", "QUEUE")


class TraceError(ValueError):
    """The events are of no run that can be judged; the message is one sentence."""


@dataclass(frozen=True)
class Span:
    """An operation of a rank. Times are microseconds."""

    rank: int  # that the process had at the start of the job
    kind: str
    name: str
    begin: float
    end: float
    bytes: int = 0
    process_set: int = 0
    agreed: float | None = None  # all ranks had come
    started: float | None = None  # its data began to move
    epoch: int = 0  # in an elastic job: the number of the world


@dataclass(frozen=True)
class Epoch:
    """Its ranks, as they were at the start, and from its first operation to its last."""

    ranks: tuple[int, ...]
    begin: float
    end: float


@dataclass(frozen=True)
class Run:
    """The operations of all ranks, by rank and time."""

    ranks: dict[int, list[Span]]
    unended: int = 0  # operations without an end, as of a rank that was killed

    @property
    def spans(self) -> list[Span]:
        """Of all ranks."""
        return [span for spans in self.ranks.values() for span in spans]

    @property
    def epochs(self) -> dict[int, Epoch]:
        """Those that have operations, by number; the only one of a job that is not elastic is 0."""
        by_number: dict[int, list[Span]] = defaultdict(list)
        for span in self.spans:
            by_number[span.epoch].append(span)
        return {
            number: Epoch(
                tuple(sorted({span.rank for span in spans})),
                min(span.begin for span in spans),
                max(span.end for span in spans),
            )
            for number, spans in sorted(by_number.items())
        }


def read(events: Iterable[str]) -> Run:
    """Read the events of all ranks, each rank's in their order; other events are left out. Raises TraceError."""
    epochs: dict[object, int] = {}
    open_spans: dict[tuple[int, str, str], Span] = {}
    open_phases: dict[tuple[tuple[int, str, str], str], float] = {}
    ranks: dict[int, list[Span]] = defaultdict(list)
    for text in events:
        event = json.loads(text)
        if event.get("ph") == "i":
            _enter_epoch(epochs, event)
        if event.get("ph") not in ("b", "e") or not _is_sound(event):
            continue
        key = event["pid"], event["cat"], str(event["id"])
        name, at = str(event["name"]), float(event["ts"])
        is_phase = name in _PHASES or name == event["cat"].upper()
        if event["ph"] == "b" and is_phase:
            open_phases[key, name] = at
        elif event["ph"] == "b":
            given = event.get("args") or {}
            size, of_set = int(given.get("bytes", 0)), int(given.get("process_set", 0))
            open_spans[key] = Span(
                event["pid"], event["cat"], name, at, at, size, of_set, epoch=epochs.get(event["pid"], 0)
            )
        elif is_phase:
            _end_phase(open_spans, open_phases.pop((key, name), None), key, name, at)
        elif key in open_spans:
            ranks[event["pid"]].append(replace(open_spans.pop(key), end=at))
    if not ranks:
        raise TraceError("holds no operation that has ended")
    return Run({rank: sorted(ranks[rank], key=lambda span: span.begin) for rank in sorted(ranks)}, len(open_spans))


def _end_phase(
    spans: dict[tuple[int, str, str], Span], begun: float | None, key: tuple[int, str, str], name: str, at: float
) -> None:
    if begun is None or key not in spans:
        return
    if name == "NEGOTIATE":
        spans[key] = replace(spans[key], agreed=at)
    elif name == "QUEUE":
        spans[key] = replace(spans[key], started=at)


def _enter_epoch(epochs: dict[object, int], event: dict[str, Any]) -> None:
    """An instant of a rank, which may tell that it has entered a later world of an elastic job."""
    given = event.get("args")
    if isinstance(given, dict) and isinstance(number := given.get("epoch"), int):
        epochs[event.get("pid")] = number


def _is_sound(event: dict[str, Any]) -> bool:
    return (
        isinstance(event.get("pid"), int)
        and isinstance(event.get("cat"), str)
        and isinstance(event.get("ts"), int | float)
        and "id" in event
        and "name" in event
    )
