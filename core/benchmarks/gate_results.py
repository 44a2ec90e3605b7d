"""Turns the times of gate.py into ratios, outcomes and a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gate_rows import Row

MET, MISSED, NOISY, INFORMATION = "met", "missed", "noisy", "information"
HEADS = ("row", "limit", "new, minimum", "median", "frozen, minimum", "median", "outcome")

Turns = Sequence[Sequence[float]]  # seconds of each batch of each turn


@dataclass(frozen=True)
class Ratio:
    """The time of one build over that of another."""

    minimum: float
    median: float

    @property
    def most(self) -> float:
        return max(self.minimum, self.median)

    @property
    def noise(self) -> float:
        """How far a build is from itself in either direction; at least 1."""
        return max(self.most, 1 / self.minimum, 1 / self.median)


def compare(these: Turns, those: Turns) -> Ratio:
    """Compare the best batches, and the median batches of neighbouring turns.

    The speed of a virtual machine changes during a run, but seldom between neighbouring turns. So the median of their
    ratios is steadier than a ratio of medians over all turns.
    """
    pairs = zip(these, those, strict=True)
    ratios = [statistics.median(this) / statistics.median(that) for this, that in pairs]
    return Ratio(min(map(min, these)) / min(map(min, those)), statistics.median(ratios))


@dataclass(frozen=True)
class Result:
    """The result of a row."""

    row: Row
    new: Ratio  # new over frozen
    itself: Ratio  # frozen over frozen
    oversubscribed: bool = False  # by more ranks than cores

    @property
    def outcome(self) -> str:
        """Assess the row, unless it is noisy or its ranks have to wait for a core."""
        if self.oversubscribed:
            return INFORMATION
        if self.itself.noise > self.row.limit:
            return NOISY
        return MET if self.new.most <= self.row.limit else MISSED

    @property
    def cells(self) -> list[str]:
        ratios = (self.row.limit, self.new.minimum, self.new.median, self.itself.minimum, self.itself.median)
        return [self.row.title, *(f"{ratio:.3f}" for ratio in ratios), self.outcome]


def table_lines(results: Sequence[Result]) -> list[str]:
    """Format a table for a terminal or Markdown. All ratios are over the frozen build."""
    rows = [list(HEADS), *(result.cells for result in results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, " | ".join("-" * width for width in widths))
    return [f"| {line} |" for line in lines]


def summary(results: Sequence[Result]) -> str:
    """`12 met, 1 missed, 2 noisy, 15 information`."""
    outcomes = [result.outcome for result in results]
    counts = {outcome: outcomes.count(outcome) for outcome in (MET, MISSED, NOISY, INFORMATION)}
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)


def all_met(results: Sequence[Result]) -> bool:
    """Whether all judged rows are met. A noisy row is not: it must be measured again."""
    return all(result.outcome in (MET, INFORMATION) for result in results)
