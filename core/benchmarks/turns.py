"""Contestants take turns at one size, so that all of them meet the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from contestants import Contestant, ContestantError

TURNS = 24  # of some milliseconds each, since a virtual machine may change its state several times a second
LEAST_TURNS = 2
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
        """Seconds of one operation, batch by batch.

        The first of several batches does not count: the contestant has slept while others had their turns.
        """
        warming = int(batches > 1)
        times = self.contestant.measure(self.fixed_bytes or size_bytes, repetitions, batches + warming, self.what)
        return times[warming:]


@dataclass(frozen=True)
class Times:
    """Microseconds of one operation."""

    min_us: float
    median_us: float
    batches: int


class _Share:
    """The time that one entry has for one size, and what came of it."""

    def __init__(self, seconds: float, once: float) -> None:
        self.repetitions = max(1, min(MOST_REPETITIONS, int(BATCH_S / max(once, 1e-8))))
        self.times: list[float] = []
        self._seconds = seconds
        self._spent = 0.0

    def batches(self, turn: int) -> int:
        """How many to ask for in this turn, from what batches have cost so far; 0 when the time is used up."""
        if turn < LEAST_TURNS:
            return 2
        left = self._seconds - self._spent
        wanted = left / (TURNS - turn) / (self._spent / len(self.times))
        return 0 if left <= 0 else max(1, min(MOST_BATCHES, int(wanted)))

    def note(self, times: list[float], spent: float) -> None:
        self.times += times
        self._spent += spent


class Round:
    """The contestants of one table. One that gets too slow or ends skips the larger sizes, and `gone` says why."""

    def __init__(self, entries: Sequence[Entry], seconds: float, slow_s: float = SLOW_S) -> None:
        self._entries = list(entries)
        self._seconds = seconds  # for each contestant and size, about
        self._slow_s = slow_s
        self._times: dict[int, dict[str, list[float]]] = {}  # seconds of a batch, by size and name
        self.gone: dict[str, str] = {}

    def measure(self, size_bytes: int) -> dict[str, Times]:
        """By name of the entry, from this call and all before it of the same size."""
        shares: dict[str, _Share] = {}
        for entry in self._taking(size_bytes):
            first = self._ask(entry, size_bytes, 1, 2)
            if first:
                shares[entry.name] = _Share(self._seconds, min(first))
            if first and min(first) > self._slow_s:
                self.gone[entry.name] = f"took {min(first):.2g} s at {readable(size_bytes)}"
                shares[entry.name].times = first
        for turn in range(TURNS):
            for entry in self._taking(size_bytes):
                share = shares[entry.name]
                batches = share.batches(turn)
                if batches:
                    begin = time.monotonic()
                    times = self._ask(entry, size_bytes, share.repetitions, batches)
                    share.note(times, time.monotonic() - begin)
        found = self._times.setdefault(size_bytes, {})
        for name, share in shares.items():
            found.setdefault(name, []).extend(share.times)
        return {
            name: Times(min(times) * 1e6, statistics.median(times) * 1e6, len(times))
            for name, times in found.items()
            if times
        }

    def _taking(self, size_bytes: int) -> list[Entry]:
        return [entry for entry in self._entries if entry.takes(size_bytes) and entry.name not in self.gone]

    def _ask(self, entry: Entry, size_bytes: int, repetitions: int, batches: int) -> list[float]:
        try:
            return entry.measure(size_bytes, repetitions, batches)
        except ContestantError as error:
            self.gone[entry.name] = str(error)
            entry.contestant.close()  # its other ranks may spin
            return []


def readable(size_bytes: int) -> str:
    for unit, factor in (("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= factor:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"
