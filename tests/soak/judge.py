"""The arithmetic of the soak: shares of steps, pauses, names of culprits, growth. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from statistics import median

Span = tuple[float, float]  # of time, in seconds of one clock
_CULPRIT = re.compile(r"farandole: rank (\d+) (?:on \S+ \(pid|\(host)")


def united(spans: Iterable[Span]) -> list[Span]:
    """The same time, without overlaps and in order."""
    result: list[Span] = []
    for begin, end in sorted(span for span in spans if span[1] > span[0]):
        if result and begin <= result[-1][1]:
            result[-1] = result[-1][0], max(result[-1][1], end)
        else:
            result.append((begin, end))
    return result


def without(whole: Span, taken: Iterable[Span]) -> list[Span]:
    """The rest of a span of time."""
    left, at = [], whole[0]
    for begin, end in united(taken):
        if begin >= whole[1]:
            break
        if begin > at:
            left.append((at, begin))
        at = max(at, end)
    return [*left, (at, whole[1])] if at < whole[1] else left


def within(whole: Span, spans: Iterable[Span]) -> list[Span]:
    """The part of a span of time that these cover."""
    return without(whole, without(whole, spans))


def length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)


class Steps:
    """The steps of a job: at which time how many were done."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.counts: list[float] = []

    def saw(self, time: float, count: float) -> None:
        """So many are done at this time. Counts that are not more than before tell nothing."""
        if not self.counts or count > self.counts[-1]:
            self.times.append(time)
            self.counts.append(count)

    def done(self, time: float) -> float:
        """How many were done until then, between two looks in proportion."""
        place = bisect_right(self.times, time)
        if place == 0:
            return 0.0
        if place == len(self.times):
            return self.counts[-1]
        since, until = self.times[place - 1], self.times[place]
        before, after = self.counts[place - 1], self.counts[place]
        return before + (after - before) * (time - since) / (until - since)

    def during(self, spans: Iterable[Span]) -> float:
        return sum(self.done(end) - self.done(begin) for begin, end in spans)

    def rate(self, spans: Sequence[Span]) -> float:
        """Steps per second; 0 for no time."""
        return self.during(spans) / length(spans) if spans else 0.0

    def pauses(self, whole: Span, stopped: Sequence[Span], longest_s: float) -> list[Span]:
        """The spans without a step that are longer than this, beside the time in which a rank was stopped."""
        marks = [whole[0], *(time for time in self.times if whole[0] < time < whole[1]), whole[1]]
        return [span for span in pairwise(marks) if length(without(span, stopped)) > longest_s]


def culprits(lines: Iterable[str]) -> list[tuple[int, str]]:
    """The ranks that the launcher's and the ranks' sentences say were lost or have left, each with its line."""
    return [(int(found[1]), line) for line in lines if (found := _CULPRIT.search(line))]


def wrong(lines: Iterable[str], hit: Collection[int]) -> list[str]:
    """The sentences that name a rank which no fault has hit."""
    return [line for rank, line in culprits(lines) if rank not in hit]


def growth(samples: Sequence[float]) -> float:
    """From the median of the second quarter to that of the last one: the first has what a process needs once."""
    quarter = len(samples) // 4
    return 0.0 if quarter == 0 else median(samples[-quarter:]) - median(samples[quarter : 2 * quarter])
