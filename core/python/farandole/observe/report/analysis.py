"""Computes where the time of a run went, and suggests changes. Pure."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from farandole.observe.records import Operation
from farandole.observe.report.trace import Epoch, Run
from farandole.observe.waits import NONE, Span, arrivals_of, covered, key, times_of

_MOST_NAMES = 12
_WORTH = 0.03  # share of the time from which advice is given
_SMALL_BYTES = 16 << 10
_LARGE_BYTES = 1 << 20


@dataclass(frozen=True)
class OfRank:
    """A rank's time, in seconds."""

    rank: int
    outside: float  # in no operation
    waiting: float  # for other ranks' calls
    moving: float  # in queues, and moving data
    kept: float  # while all others waited for this rank

    @property
    def seconds(self) -> float:
        """The time in which the rank took part in the job."""
        return self.outside + self.waiting + self.moving


@dataclass(frozen=True)
class OfName:
    """All operations of one name. Times are seconds per rank."""

    name: str
    count: int  # per rank
    bytes: int  # of one operation
    total: float
    waiting: float


@dataclass(frozen=True)
class Advice:
    """A change, and the share of the time that it saves at best."""

    text: str
    gain: float


@dataclass(frozen=True)
class Analysis:
    """A run in numbers."""

    seconds: float
    ranks: tuple[OfRank, ...]
    names: tuple[OfName, ...]
    operations: int  # per rank, on average
    bytes_per_s: float  # of operands, per rank
    compared: float  # share of operations whose arrivals are known on all ranks
    unended: int
    advice: tuple[Advice, ...]
    epochs: tuple[tuple[int, ...], ...]  # the ranks of each epoch; other than elastic jobs have one epoch

    def share(self, field: str) -> float:
        """Return the mean over all ranks, as a share of the time in which they took part."""
        total: float = sum(getattr(rank, field) for rank in self.ranks)
        return total / max(sum(rank.seconds for rank in self.ranks), 1e-9)

    @property
    def slowest(self) -> OfRank:
        """The rank for which the others waited longest."""
        return max(self.ranks, key=lambda rank: rank.kept)


def analyse(run: Run) -> Analysis:
    """Assess a run."""
    epochs = [_analyse_epoch(epoch) for epoch in run.epochs]
    begin_ns, end_ns = min(each.begin_ns for each in epochs), max(each.end_ns for each in epochs)
    by_rank: dict[int, list[Operation]] = defaultdict(list)
    for epoch in epochs:
        for rank, operations in epoch.ranks.items():
            by_rank[rank] += operations
    ranks = tuple(_of_rank(rank, [each for each in epochs if rank in each.ranks]) for rank in sorted(by_rank))
    used, count = list(chain(*by_rank.values())), len(ranks)
    seconds = max((end_ns - begin_ns) / 1e9, 1e-9)
    small = sum(map(_blocked, by_rank.values())) / count
    return Analysis(
        seconds,
        ranks,
        _names(used, count),
        round(len(used) / count),
        sum(each.bytes for each in used) / max(sum(each.seconds for each in ranks), 1e-9),
        sum(each.compared for each in epochs) / len(used),
        run.unended,
        _advice(ranks, used, seconds, small),
        tuple(tuple(each.ranks) for each in epochs),
    )


class _EpochAnalysis(NamedTuple):
    """An epoch in which each operation has the time at which all ranks had come, if that is known."""

    begin_ns: int
    end_ns: int
    ranks: dict[int, list[Operation]]
    waits: dict[int, list[Span]]  # by rank: when all others waited for it
    compared: int  # operations whose arrivals are known on all ranks


def _analyse_epoch(epoch: Epoch) -> _EpochAnalysis:
    by_set: dict[int, dict[int, list[Operation]]] = defaultdict(lambda: defaultdict(list))
    for rank, operations in epoch.ranks.items():
        for each in operations:
            by_set[each.process_set][rank].append(each)
    # Process set 0 has all ranks, other sets those that have used them.
    arrivals = {
        number: arrivals_of(ranks, len(ranks) if number else len(epoch.ranks), epoch.begin_ns, epoch.end_ns)
        for number, ranks in by_set.items()
    }
    waits: dict[int, list[Span]] = defaultdict(list)
    for found in arrivals.values():
        for rank, spans in found.waits.items():
            waits[rank] += spans
    ranks = {
        rank: [replace(each, agreed_ns=arrivals[each.process_set].agreed_ns(each)) for each in operations]
        for rank, operations in epoch.ranks.items()
    }
    compared = sum(key(each) in arrivals[each.process_set].last for each in chain(*ranks.values()))
    return _EpochAnalysis(epoch.begin_ns, epoch.end_ns, ranks, waits, compared)


def _of_rank(rank: int, epochs: Sequence[_EpochAnalysis]) -> OfRank:
    """Compute a rank's time. `epochs` are those in which it took part."""
    took = sum(each.end_ns - each.begin_ns for each in epochs)
    inside, waiting = times_of(chain.from_iterable(each.ranks[rank] for each in epochs), NONE)
    kept = covered(span for each in epochs for span in each.waits.get(rank, ()))
    parts = max(0.0, took - inside), waiting, max(0.0, inside - waiting), kept
    return OfRank(rank, *(each / 1e9 for each in parts))


def _moving(operation: Operation) -> float:
    """Return the seconds from the arrival of the last rank to the end."""
    begin_ns = operation.submitted_ns if operation.agreed_ns is None else operation.agreed_ns
    return max(0, (operation.ended_ns or 0) - begin_ns) / 1e9


def _took(operation: Operation) -> float:
    return ((operation.ended_ns or 0) - operation.submitted_ns) / 1e9


def _names(used: Sequence[Operation], ranks: int) -> tuple[OfName, ...]:
    by_name: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for each in used:
        by_name[each.kind, each.name].append(each)
    rows = [
        OfName(
            name if name.startswith((kind, "unnamed ")) else f"{kind} {name}",
            round(len(all_of_it) / ranks),
            round(sum(each.bytes for each in all_of_it) / len(all_of_it)),
            sum(map(_took, all_of_it)) / ranks,
            sum(_took(each) - _moving(each) for each in all_of_it) / ranks,
        )
        for (kind, name), all_of_it in by_name.items()
    ]
    return tuple(heapq.nlargest(_MOST_NAMES, rows, key=lambda row: row.total))


def _blocked(operations: Sequence[Operation]) -> float:
    """Return the seconds that a rank spent in small operations one after the other, without waits."""
    pairs = zip(operations, [*operations[1:], None], strict=True)
    alone = (each for each, after in pairs if after is None or after.submitted_ns >= (each.ended_ns or 0))
    return sum(_moving(each) for each in alone if each.bytes <= _SMALL_BYTES)


def _advice(ranks: Sequence[OfRank], used: Sequence[Operation], seconds: float, small: float) -> tuple[Advice, ...]:
    slowest = max(ranks, key=lambda rank: rank.kept)
    alone = slowest.kept - max((rank.kept for rank in ranks if rank is not slowest), default=0.0)
    in_turns = sum(rank.kept for rank in ranks) - alone
    moving = sum(rank.moving for rank in ranks) / len(ranks)
    of_large = sum(_moving(each) for each in used if each.bytes >= _LARGE_BYTES) / len(ranks)
    waiting = sum(rank.waiting for rank in ranks) / len(ranks)
    found = [
        Advice(
            f"rank {slowest.rank} is the slowest: give it less data or more processors, and look at it "
            "with farandole inspect",
            alone / seconds,
        ),
        Advice(
            "different ranks are late: batches differ in length, or loaders are slow; sort samples by length, or add "
            "workers to the loaders",
            min(in_turns, waiting) / seconds,
        ),
        Advice(
            "large operands take the time: compression=hvd.Compression.fp16 halves their bytes",
            min(of_large, moving) / 2 / seconds,
        ),
        Advice(
            "small operations run one after the other: grouped_allreduce, or calls that do not block, send them "
            "together",
            0.8 * min(small, moving) / seconds,
        ),
    ]
    return tuple(sorted((each for each in found if each.gain >= _WORTH), key=lambda each: -each.gain))
