"""Computes from the operations of ranks how long a step takes, and which rank waits for which. Pure.

The report uses it for a whole run, the live page and metrics for the last seconds. Times are nanoseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from statistics import median

from farandole.observe.records import Operation

WINDOW_NS = 5_000_000_000  # for shares, bytes and steps while a job runs

Span = tuple[float, float]
_Key = tuple[int, str, int, str]


@dataclass(frozen=True)
class Arrivals:
    """When ranks arrived at the operations of one process set. Empty if not all ranks are known."""

    last: dict[_Key, tuple[int, int]] = field(default_factory=dict)  # when the last rank came, and which one
    waits: dict[int, list[Span]] = field(default_factory=dict)  # by rank: when all others waited for it
    lacking: frozenset[_Key] = frozenset()  # operations that some rank has not begun yet
    since_ns: int = 0
    now_ns: int = 1

    @property
    def covered_ns(self) -> int:
        """The time that this covers."""
        return max(1, self.now_ns - self.since_ns)

    def kept_share(self, rank: int) -> float:
        """Return the share of the time in which all others waited for a rank."""
        return covered(self.waits.get(rank, ()), self.since_ns, self.now_ns) / self.covered_ns

    def agreed_ns(self, operation: Operation) -> int | None:
        """Return when all ranks had come; for small operations, which have no phases, from the other ranks' records."""
        if operation.agreed_ns is not None:
            return operation.agreed_ns
        if operation.ended_ns is None:
            return self.now_ns if key(operation) in self.lacking else None
        arrival = self.last.get(key(operation))
        return None if arrival is None else min(max(arrival[0], operation.submitted_ns), operation.ended_ns)


NONE = Arrivals()


def key(operation: Operation) -> _Key:
    """Return a key that is equal for the ranks' calls of one operation."""
    return operation.process_set, operation.name, operation.count, operation.kind


def arrivals_of(ranks: Mapping[int, Sequence[Operation]], size: int, since_ns: int, now_ns: int) -> Arrivals:
    """Find which ranks came last, over the given time or as far back as all ranks' records reach.

    Args:
        ranks: by rank, its operations of one process set, in the order in which it began them.
        size: number of ranks in the process set.
        since_ns: beginning of the time.
        now_ns: end of the time.
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
    """Return, for each rank, the time spans in which all others only waited for it.

    Calls overlap: a backward pass makes one for each gradient, while the ranks compute. So a rank counts as waiting
    only in a call that ends before the rank makes the next one.
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
    """Yield the times that `count` spans have in common. No more than `count` overlap."""
    edges = sorted(edge for begin, end in spans if end > begin for edge in ((begin, 1), (end, -1)))
    depth, since = 0, -inf
    for at, change in edges:
        if depth == count:
            yield since, at
        depth, since = depth + change, at


def covered(spans: Iterable[Span], begin: float = -inf, end: float = inf) -> float:
    """Return how much time between `begin` and `end` is covered by at least one span."""
    total, reached = 0.0, begin
    for first, last in sorted(spans):
        first, last = max(first, reached), min(last, end)
        if last > first:
            total, reached = total + last - first, last
    return total


def times_of(
    operations: Iterable[Operation], arrivals: Arrivals, begin_ns: float = -inf, end_ns: float = inf
) -> tuple[float, float]:
    """Return how long a rank had an operation in flight, and how long it waited for calls of other ranks."""
    flights, waits = [], []
    for each in operations:
        flights.append((each.submitted_ns, end_ns if each.ended_ns is None else each.ended_ns))
        if (agreed_ns := arrivals.agreed_ns(each)) is not None:
            waits.append((each.submitted_ns, agreed_ns))
    return covered(flights, begin_ns, end_ns), covered(waits, begin_ns, end_ns)


@dataclass(frozen=True)
class Measured:
    """The numbers of a rank over the last seconds."""

    bytes_per_s: float = 0.0  # of its operations' operands
    in_flight: float = 0.0  # share of the time with at least one operation
    waiting: float = 0.0  # share of the time in which it waited for other ranks to make a call
    step_ns: float | None = None  # from one use of the largest named operation to the next


def measure(operations: Sequence[Operation], now_ns: int, arrivals: Arrivals = NONE) -> Measured:
    """Compute means over the window, or as far back as the records reach. `operations` are sorted by number."""
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
    """Return the median time between uses of the named operation that moves the most bytes, such as a gradient."""
    uses: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.name and operation.tensors:
            uses[operation.kind, operation.name].append(operation)
    repeated = [each for each in uses.values() if len(each) >= 3]
    if not repeated:
        return None
    most = max(repeated, key=lambda each: (each[-1].bytes, len(each)))
    return median(after.submitted_ns - before.submitted_ns for before, after in pairwise(most))
