"""The time in which ranks wait for one of them. Pure; times have any unit, the same throughout."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple

Span = tuple[float, float]


class Call(NamedTuple):
    """One rank's call of an operation."""

    begin: float
    end: float  # inf while it is in flight
    all_came: float = inf  # when the last rank made the call
    last_rank: int = -1  # that rank; -1 where it is not known


def waited_for(ranks: Mapping[int, Sequence[Call]]) -> dict[int, list[Span]]:
    """For each rank the spans of time in which all others had nothing left to do but to wait for it.

    Calls overlap: a backward pass has one for each gradient, and the ranks compute beside them. So a rank waits only in
    a call that ends before it makes the next one.

    Args:
        ranks: by rank, its calls in one process set, in the order in which it made them.
    """
    waits: dict[int, list[Span]] = defaultdict(list)
    for rank, calls in ranks.items():
        for call, after in pairwise([*calls, Call(inf, inf)]):
            if call.last_rank not in (-1, rank) and after.begin >= call.end:
                waits[call.last_rank].append((call.begin, min(call.all_came, call.end)))
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
    """How much of the time from `begin` to `end` at least one of the spans covers."""
    total, reached = 0.0, begin
    for first, last in sorted(spans):
        first, last = max(first, reached), min(last, end)
        if last > first:
            total, reached = total + last - first, last
    return total
