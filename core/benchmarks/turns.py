"""Contestants take turns at one size, so that all of them meet the same machine."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from contestants import Contestant, ContestantError

TURNS = 8
BATCH_S = 0.0004  # short enough for some batches to meet no disturbance
MOST_REPETITIONS = 400
MOST_BATCHES = 200
SLOW_S = 0.6


@dataclass(frozen=True)
class Entry:
    """One column of a table: a contestant, and what it is asked for."""

    name: str
    contestant: Contestant
    what: str = ""
    least_bytes: int = 0
    most_bytes: int = 1 << 62
    fixed_bytes: int = 0  # asked for instead of the size of the row

    def takes(self, size_bytes: int) -> bool:
        return self.least_bytes <= size_bytes <= self.most_bytes

    def measure(self, size_bytes: int, repetitions: int, batches: int) -> list[float]:
        return self.contestant.measure(self.fixed_bytes or size_bytes, repetitions, batches, self.what)


@dataclass(frozen=True)
class Times:
    """Microseconds of one operation."""

    min_us: float
    median_us: float
    batches: int


class Round:
    """The contestants of one table. Who gets too slow or ends sits the larger sizes out, and `gone` says why."""

    def __init__(self, entries: Sequence[Entry], seconds: float) -> None:
        self._entries = list(entries)
        self._seconds = seconds  # for each contestant and size, about
        self.gone: dict[str, str] = {}

    def measure(self, size_bytes: int) -> dict[str, Times]:
        """By name of the entry."""
        times: dict[str, list[float]] = {}
        plans: dict[str, tuple[int, int, int]] = {}
        for entry in self._taking(size_bytes):
            first = self._ask(entry, size_bytes, 1, 2)
            if first and min(first) > SLOW_S:
                self.gone[entry.name] = f"took {min(first):.2g} s at {readable(size_bytes)}"
                times[entry.name] = first
            elif first:
                once = max(min(first), 1e-8)
                plans[entry.name] = self._plan(once)
                times[entry.name] = []
        for turn in range(TURNS):
            for entry in self._taking(size_bytes):
                turns, repetitions, batches = plans.get(entry.name, (0, 0, 0))
                if turn < turns:
                    times[entry.name] += self._ask(entry, size_bytes, repetitions, batches)
        return {
            name: Times(min(seconds) * 1e6, statistics.median(seconds) * 1e6, len(seconds))
            for name, seconds in times.items()
            if seconds
        }

    def _plan(self, once: float) -> tuple[int, int, int]:
        """Turns, and what is asked for in each: repetitions and batches."""
        repetitions = max(1, min(MOST_REPETITIONS, int(BATCH_S / once)))
        batches = max(1, min(MOST_BATCHES, int(self._seconds / TURNS / (once * repetitions))))
        return max(2, min(TURNS, int(self._seconds / (once * repetitions * batches)))), repetitions, batches

    def _taking(self, size_bytes: int) -> list[Entry]:
        return [entry for entry in self._entries if entry.takes(size_bytes) and entry.name not in self.gone]

    def _ask(self, entry: Entry, size_bytes: int, repetitions: int, batches: int) -> list[float]:
        try:
            return entry.measure(size_bytes, repetitions, batches)
        except ContestantError as error:
            self.gone[entry.name] = str(error)
            return []


def readable(size_bytes: int) -> str:
    for unit, factor in (("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= factor:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"
