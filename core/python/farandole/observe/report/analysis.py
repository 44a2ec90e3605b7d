"""Where the time of a run went, and what to change. Pure."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farandole.observe.report.trace import Epoch, Run, Span
from farandole.observe.waits import Call, covered, waited_for

_MOST_NAMES = 12
_WORTH = 0.03  # of the time, from which on advice is given
_SMALL_BYTES = 16 << 10
_LARGE_BYTES = 1 << 20


@dataclass(frozen=True)
class OfRank:
    """A rank's time, in seconds."""

    rank: int
    outside: float  # of operations
    waiting: float  # for other ranks' calls
    moving: float  # queues and data
    kept: float  # for so long all others waited for this one


@dataclass(frozen=True)
class OfName:
    """All operations of one name, of all ranks. Times are seconds of a rank."""

    name: str
    count: int  # of each rank
    bytes: int  # of one
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
    operations: int  # of each rank, on average
    bytes_per_s: float  # operands of a rank
    compared: float  # the share of operations whose arrivals are known on all ranks
    unended: int
    advice: tuple[Advice, ...]
    epochs: tuple[tuple[int, ...], ...]  # of an elastic job: the ranks of each; one of any other job

    def share(self, field: str) -> float:
        """The mean over all ranks, as a share of the time that they took part."""
        total: float = sum(getattr(rank, field) for rank in self.ranks)
        return total / sum(rank.outside + rank.waiting + rank.moving for rank in self.ranks)

    @property
    def slowest(self) -> OfRank:
        """The rank for which the others waited longest."""
        return max(self.ranks, key=lambda rank: rank.kept)


def analyse(run: Run) -> Analysis:
    """Judge a run."""
    epochs, spans, count = run.epochs, run.spans, len(run.ranks)
    begin, end = min(each.begin for each in epochs.values()), max(each.end for each in epochs.values())
    seconds = max((end - begin) / 1e6, 1e-9)
    last, kept = _arrivals(run)
    ranks = tuple(
        _of_rank(rank, of_rank, last, kept[rank], _seconds_of(rank, epochs.values()))
        for rank, of_rank in run.ranks.items()
    )
    compared = sum(span in last for span in spans) / len(spans)
    small = sum(_blocked(of_rank, last) for of_rank in run.ranks.values()) / count
    return Analysis(
        seconds,
        ranks,
        _names(spans, last, count),
        round(len(spans) / count),
        sum(span.bytes for span in spans) / sum(_seconds_of(rank, epochs.values()) for rank in run.ranks),
        compared,
        run.unended,
        _advice(ranks, spans, seconds, small),
        tuple(each.ranks for each in epochs.values()),
    )


def _seconds_of(rank: int, epochs: Iterable[Epoch]) -> float:
    """How long a rank took part in the job."""
    return max(sum(each.end - each.begin for each in epochs if rank in each.ranks) / 1e6, 1e-9)


def _arrivals(run: Run) -> tuple[dict[Span, float], dict[int, float]]:
    """When the last rank came to each operation; and for how long all others waited for each rank, in seconds."""
    uses: dict[tuple[int, int, str, str], dict[int, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for span in run.spans:
        uses[span.epoch, span.process_set, span.kind, span.name][span.rank].append(span)
    latest: dict[Span, Span] = {}
    epochs = run.epochs
    for (epoch, process_set, *_), by_rank in uses.items():
        if len(by_rank) < 2 or (process_set == 0 and len(by_rank) < len(epochs[epoch].ranks)):
            continue
        for together in _paired(list(by_rank.values())):
            latest |= dict.fromkeys(together, max(together, key=lambda span: span.begin))
    return {span: last.begin for span, last in latest.items()}, _kept(run, latest)


def _paired(ranks: Sequence[Sequence[Span]]) -> list[tuple[Span, ...]]:
    """The uses of a name that belong together: the n-th of each rank, where all have used it equally often.

    A rank that is killed has recorded fewer. Then they do if each began everywhere before it ended anywhere.
    """
    pairs = list(zip(*ranks, strict=False))
    alike = len({len(spans) for spans in ranks}) == 1
    if alike or all(max(span.begin for span in pair) <= min(span.end for span in pair) for pair in pairs):
        return pairs
    return []


def _kept(run: Run, latest: dict[Span, Span]) -> dict[int, float]:
    """For how long all others waited for each rank. `latest`: the call that came last to the operation of each."""
    calls: dict[tuple[int, int], dict[int, list[Call]]] = defaultdict(lambda: defaultdict(list))
    for span in run.spans:
        last = latest.get(span)
        call = Call(span.begin, span.end, last.begin, last.rank) if last else Call(span.begin, span.end)
        calls[span.epoch, span.process_set][span.rank].append(call)
    waits = [waited_for(of_set) for of_set in calls.values()]
    return {rank: covered(span for each in waits for span in each.get(rank, ())) / 1e6 for rank in run.ranks}


def _of_rank(rank: int, spans: Sequence[Span], last: dict[Span, float], kept: float, seconds: float) -> OfRank:
    inside = covered((span.begin, span.end) for span in spans) / 1e6
    waiting = covered((span.begin, _agreed(span, last)) for span in spans) / 1e6
    return OfRank(rank, max(0.0, seconds - inside), waiting, max(0.0, inside - waiting), kept)


def _agreed(span: Span, last: dict[Span, float]) -> float:
    at = span.agreed if span.agreed is not None else last.get(span, span.begin)
    return min(max(at, span.begin), span.end)


def _names(spans: Sequence[Span], last: dict[Span, float], ranks: int) -> tuple[OfName, ...]:
    by_name: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in spans:
        by_name[span.kind, span.name].append(span)
    rows = [
        OfName(
            name if name.startswith((kind, "unnamed ")) else f"{kind} {name}",
            round(len(each) / ranks),
            round(sum(span.bytes for span in each) / len(each)),
            sum(span.end - span.begin for span in each) / ranks / 1e6,
            sum(_agreed(span, last) - span.begin for span in each) / ranks / 1e6,
        )
        for (kind, name), each in by_name.items()
    ]
    return tuple(heapq.nlargest(_MOST_NAMES, rows, key=lambda row: row.total))


def _blocked(spans: Sequence[Span], last: dict[Span, float]) -> float:
    """Seconds in small operations that came one after the other, apart from waits."""
    alone = (
        span for span, after in zip(spans, [*spans[1:], None], strict=True) if not after or after.begin >= span.end
    )
    small = (span for span in alone if span.bytes <= _SMALL_BYTES)
    return sum(span.end - _agreed(span, last) for span in small) / 1e6


def _advice(ranks: Sequence[OfRank], spans: Sequence[Span], seconds: float, small: float) -> tuple[Advice, ...]:
    slowest = max(ranks, key=lambda rank: rank.kept)
    alone = slowest.kept - max((rank.kept for rank in ranks if rank is not slowest), default=0.0)
    in_turns = sum(rank.kept for rank in ranks) - alone
    moving = sum(rank.moving for rank in ranks) / len(ranks)
    large = [span for span in spans if span.bytes >= _LARGE_BYTES]
    of_large = sum(span.end - _agreed(span, {}) for span in large) / len(ranks) / 1e6
    waiting = sum(rank.waiting for rank in ranks) / len(ranks)
    found = [
        Advice(
            f"rank {slowest.rank} comes last: give it less data or processors of its own, and look at it "
            "by farandole inspect",
            alone / seconds,
        ),
        Advice(
            "the ranks take turns in coming last: batches differ in length, or loaders are slow; sort samples by "
            "length or add workers to the loaders",
            min(in_turns, waiting) / seconds,
        ),
        Advice(
            "large operands take the time: compression=hvd.Compression.fp16 halves their bytes",
            min(of_large, moving) / 2 / seconds,
        ),
        Advice(
            "small operations come one after the other: grouped_allreduce, or calls that do not block, send them "
            "together",
            0.8 * min(small, moving) / seconds,
        ),
    ]
    return tuple(sorted((each for each in found if each.gain >= _WORTH), key=lambda each: -each.gain))
