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

    rank: int
    kind: str
    name: str
    begin: float
    end: float
    bytes: int = 0
    process_set: int = 0
    agreed: float | None = None  # all ranks had come
    started: float | None = None  # its data began to move


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
    def begin(self) -> float:
        """Of the first operation."""
        return min(span.begin for span in self.spans)

    @property
    def end(self) -> float:
        """Of the last operation."""
        return max(span.end for span in self.spans)


def read(events: Iterable[str]) -> Run:
    """Read the events of all ranks; those that are not of operations are left out. Raises TraceError."""
    open_spans: dict[tuple[int, str, str], Span] = {}
    open_phases: dict[tuple[tuple[int, str, str], str], float] = {}
    ranks: dict[int, list[Span]] = defaultdict(list)
    for text in events:
        event = json.loads(text)
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
            open_spans[key] = Span(event["pid"], event["cat"], name, at, at, size, of_set)
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


def _is_sound(event: dict[str, Any]) -> bool:
    return (
        isinstance(event.get("pid"), int)
        and isinstance(event.get("cat"), str)
        and isinstance(event.get("ts"), int | float)
        and "id" in event
        and "name" in event
    )
