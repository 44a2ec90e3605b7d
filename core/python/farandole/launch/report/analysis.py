"""Where the time of a run went, and what to change. Pure."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farandole.launch.report.trace import Run, Span

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

    def share(self, field: str) -> float:
        """The mean over all ranks, as a share of the time."""
        total: float = sum(getattr(rank, field) for rank in self.ranks)
        return total / len(self.ranks) / self.seconds

    @property
    def slowest(self) -> OfRank:
        """The rank for which the others waited longest."""
        return max(self.ranks, key=lambda rank: rank.kept)


def analyse(run: Run) -> Analysis:
    """Judge a run."""
    seconds = max((run.end - run.begin) / 1e6, 1e-9)
    last, kept = _arrivals(run)
    ranks = tuple(_of_rank(rank, spans, last, kept[rank], seconds) for rank, spans in run.ranks.items())
    spans, count = run.spans, len(run.ranks)
    compared = sum(span in last for span in spans) / len(spans)
    small = sum(_blocked(rank_spans, last) for rank_spans in run.ranks.values()) / count
    return Analysis(
        seconds,
        ranks,
        _names(spans, last, count),
        round(len(spans) / count),
        sum(span.bytes for span in spans) / count / seconds,
        compared,
        run.unended,
        _advice(ranks, spans, seconds, small),
    )


def _arrivals(run: Run) -> tuple[dict[Span, float], dict[int, float]]:
    """When the last rank came to each operation; and for how long all others waited for each rank, in seconds.

    The n-th use of a name on one rank is that on the others, where all have used it equally often.
    """
    uses: dict[tuple[str, str, int], dict[int, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for span in run.spans:
        uses[span.kind, span.name, span.process_set][span.rank].append(span)
    last: dict[Span, float] = {}
    kept = dict.fromkeys(run.ranks, 0.0)
    for (_, _, process_set), by_rank in uses.items():
        alike = len({len(spans) for spans in by_rank.values()}) == 1
        if len(by_rank) < 2 or not alike or (process_set == 0 and len(by_rank) < len(run.ranks)):
            continue
        for together in zip(*by_rank.values(), strict=True):
            latest, before = heapq.nlargest(2, together, key=lambda span: span.begin)
            kept[latest.rank] += (latest.begin - before.begin) / 1e6
            last |= dict.fromkeys(together, latest.begin)
    return last, kept


def _of_rank(rank: int, spans: Sequence[Span], last: dict[Span, float], kept: float, seconds: float) -> OfRank:
    inside = covered((span.begin, span.end) for span in spans)
    waiting = covered((span.begin, _agreed(span, last)) for span in spans)
    return OfRank(rank, max(0.0, seconds - inside), waiting, max(0.0, inside - waiting), min(kept, seconds))


def _agreed(span: Span, last: dict[Span, float]) -> float:
    at = span.agreed if span.agreed is not None else last.get(span, span.begin)
    return min(max(at, span.begin), span.end)


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The seconds that at least one of the spans of microseconds covers."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        begin = max(begin, reached)
        if end > begin:
            total, reached = total + end - begin, end
    return total / 1e6


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
    others = sum(rank.kept for rank in ranks) - slowest.kept
    moving = sum(rank.moving for rank in ranks) / len(ranks)
    large = [span for span in spans if span.bytes >= _LARGE_BYTES]
    of_large = sum(span.end - _agreed(span, {}) for span in large) / len(ranks) / 1e6
    waiting = sum(rank.waiting for rank in ranks) / len(ranks)
    found = [
        Advice(
            f"rank {slowest.rank} comes last: give it less data or processors of its own, and look at it "
            "by farandole inspect",
            slowest.kept / seconds,
        ),
        Advice(
            "the ranks take turns in coming last: batches differ in length, or loaders are slow; sort samples by "
            "length or add workers to the loaders",
            min(others, waiting) / seconds,
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
