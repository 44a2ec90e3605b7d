"""The core's reports about the waits of this rank, as `core.await_news` returns them."""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN_RANKS = -1  # instead of missing ranks; smaller numbers: this rank's device or library


class Wait(NamedTuple):
    """A group of operations that wait for the same ranks in the same way, described by the longest wait."""

    title: str
    call: str  # with the user's code: "allreduce 'w' at train.py:9"
    is_named: bool  # by the user
    set_size: int  # of its process set
    waited_ms: int
    operations: int  # size of the group
    missing: tuple[int, ...]
    who: str  # the missing ranks as text
    is_reported_by_peer: bool = False  # another rank of this node, which waits for the same, reports it
    ends_by_itself: bool = False  # whatever the programs do


class Need(NamedTuple):
    """An operation at which other ranks have arrived and this rank has not."""

    title: str
    here: tuple[int, ...]


class Report(NamedTuple):
    """All long waits; `waits` is empty once there are none."""

    entered: int  # how often this rank has submitted an operation
    warn_after_ms: int
    is_overdue: bool
    waits: list[Wait]
    needed: list[Need]
    knows_who_needs_us: bool

    @classmethod
    def of(cls, report: tuple[int, int, bool, list[tuple[object, ...]], list[tuple[object, ...]], bool]) -> Report:
        """Convert the core's tuple."""
        entered, warn_after_ms, is_overdue, waits, needed, knows = report
        named_waits = [Wait._make(each) for each in waits]
        return cls(entered, warn_after_ms, is_overdue, named_waits, [Need._make(each) for each in needed], knows)


def longest(waits: list[Wait]) -> Wait:
    """Return the longest wait."""
    return max(waits, key=lambda wait: wait.waited_ms)
