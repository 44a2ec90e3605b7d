"""Computes from the operations of ranks how long a step takes, and which rank waits for which. Pure.

The report asks about a whole run, the live page and metrics about the last seconds. Times are nanoseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from statistics import median

from farandole.observe.records import Operation

WINDOW_NS = 5_000_000_000  # over which shares, bytes and steps are taken while a job runs

Span = tuple[float, float]
_Key = tuple[int, str, int, str]


@dataclass(frozen=True)
class Arrivals:
    """Of the operations of one process set that all its ranks have begun. Empty where not all ranks are known."""

    last: dict[_Key, tuple[int, int]] = field(default_factory=dict)  # when the last rank came, and which
    waits: dict[int, list[Span]] = field(default_factory=dict)  # by rank: when all others waited for it
    lacking: frozenset[_Key] = frozenset()  # operations that some rank has not begun yet
    since_ns: int = 0
    now_ns: int = 1

    @property
    def covered_ns(self) -> int:
        """The time of which this tells."""
        return max(1, self.now_ns - self.since_ns)

    def kept_share(self, rank: int) -> float:
        """The share of the time in which all others waited for a rank."""
        return covered(self.waits.get(rank, ()), self.since_ns, self.now_ns) / self.covered_ns

    def agreed_ns(self, operation: Operation) -> int | None:
        """The time at which all had come; of small operations, which have no phases, by the other ranks' records."""
        if operation.agreed_ns is not None:
            return operation.agreed_ns
        if operation.ended_ns is None:
            return self.now_ns if key(operation) in self.lacking else None
        arrival = self.last.get(key(operation))
        return None if arrival is None else min(max(arrival[0], operation.submitted_ns), operation.ended_ns)


NONE = Arrivals()


def key(operation: Operation) -> _Key:
    """Equal for the calls of all ranks that belong together."""
    return operation.process_set, operation.name, operation.count, operation.kind


def arrivals_of(ranks: Mapping[int, Sequence[Operation]], size: int, since_ns: int, now_ns: int) -> Arrivals:
    """The ranks that came last, over this time or over the shorter time that all ranks' records reach back.

    Args:
        ranks: by rank, its operations of one process set, in the order in which it began them.
        size: of the process set.
        since_ns: the beginning of the time that matters.
        now_ns: its end.
    """
    if len(ranks) < max(2, size) or not all(ranks.values()):
        return NONE
    came: dict[_Key, list[tuple[int, int]]] = defaultdict(list)
    for rank, operations in ranks.items():
        for each in operations:
            came[key(each)].append((each.submitted_ns, rank))
    whole = {each: times for each, times in came.items() if len(times) == size}
    last = {each: max(times) for each, times in whole.items()}
    first_ns = min((at for times in whole.values() for at, _ in times), default=now_ns)
    lacking = frozenset(came.keys() - last.keys())
    return Arrivals(last, _waited_for(ranks, last), lacking, max(since_ns, first_ns), now_ns)


def _waited_for(
    ranks: Mapping[int, Sequence[Operation]], last: Mapping[_Key, tuple[int, int]]
) -> dict[int, list[Span]]:
    """For each rank the spans of time in which all others only waited for it.

    Calls overlap: a backward pass has one for each gradient, and the ranks compute beside them. So a rank waits only in
    a call that ends before it makes the next one.
    """
    waits: dict[int, list[Span]] = defaultdict(list)
    for rank, operations in ranks.items():
        for each, after in pairwise([*operations, None]):
            assert each is not None
            at, late = last.get(key(each), (0, rank))
            end_ns = inf if each.ended_ns is None else each.ended_ns
            if late != rank and (after is None or after.submitted_ns >= end_ns):
                waits[late].append((each.submitted_ns, min(at, end_ns)))
    return {rank: list(_shared_by(len(ranks) - 1, spans)) for rank, spans in waits.items()}


def _shared_by(count: int, spans: Iterable[Span]) -> Iterator[Span]:
    """The times that so many of the spans have in common; there are never more at once."""
    edges = sorted(edge for begin, end in spans if end > begin for edge in ((begin, 1), (end, -1)))
    depth, since = 0, -inf
    for at, change in edges:
        if depth == count:
            yield since, at
        depth, since = depth + change, at


def covered(spans: Iterable[Span], begin: float = -inf, end: float = inf) -> float:
    """The time between `begin` and `end` that at least one of the spans covers."""
    total, reached = 0.0, begin
    for first, last in sorted(spans):
        first, last = max(first, reached), min(last, end)
        if last > first:
            total, reached = total + last - first, last
    return total


def times_of(
    operations: Iterable[Operation], arrivals: Arrivals, begin_ns: float = -inf, end_ns: float = inf
) -> tuple[float, float]:
    """How long a rank had an operation in flight, and how long it waited for calls of other ranks."""
    flights, waits = [], []
    for each in operations:
        flights.append((each.submitted_ns, end_ns if each.ended_ns is None else each.ended_ns))
        if (agreed_ns := arrivals.agreed_ns(each)) is not None:
            waits.append((each.submitted_ns, agreed_ns))
    return covered(flights, begin_ns, end_ns), covered(waits, begin_ns, end_ns)


@dataclass(frozen=True)
class Measured:
    """A rank over the last seconds."""

    bytes_per_s: float = 0.0  # of its operations' operands
    in_flight: float = 0.0  # share of the time with at least one operation
    waiting: float = 0.0  # share of the time in which it waited for other ranks to make a call
    step_ns: float | None = None  # from one use of the largest named operation to the next


def measure(operations: Sequence[Operation], now_ns: int, arrivals: Arrivals = NONE) -> Measured:
    """Take means over the window, or over the shorter time that the records reach back. `operations`: by number."""
    from_ns = now_ns - WINDOW_NS
    within = [each for each in operations if each.ended_ns is None or each.ended_ns > from_ns]
    if not within:
        return Measured()
    if len(within) == len(operations):
        from_ns = max(from_ns, min(each.submitted_ns for each in within))
    passed = max(now_ns - from_ns, 1)
    bytes_done = sum(each.bytes for each in within if each.ended_ns is not None)
    in_flight, waiting = times_of(within, arrivals, from_ns, now_ns)
    return Measured(bytes_done * 1e9 / passed, in_flight / passed, waiting / passed, step_ns(within))


def step_ns(operations: Iterable[Operation]) -> float | None:
    """The median time between uses of the named operation that moves most bytes, as a step has each gradient once."""
    uses: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.name and operation.tensors:
            uses[operation.kind, operation.name].append(operation)
    repeated = [each for each in uses.values() if len(each) >= 3]
    if not repeated:
        return None
    most = max(repeated, key=lambda each: (each[-1].bytes, len(each)))
    return median(after.submitted_ns - before.submitted_ns for before, after in pairwise(most))
