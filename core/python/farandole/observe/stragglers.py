"""Finds the ranks that make the others wait in every step, and the cause. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from statistics import stdev

from farandole.observe.step_times import StepTimes

_WINDOWS_S = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 35.0, 60.0)  # the shortest significant one counts
_REMEMBERED_S = 600.0
_ALL_REMEMBERED_S, _RARELY_S = 60.0, 5.0  # how long all looks are remembered, and the distance of older ones
_FEWEST_STEPS = 10
_WORTH = 0.08  # share of the others' time that is worth a report
_SURE = 5.0  # standard errors: so many, because a job has thousands of windows in an hour
_FEWEST_WINDOWS = 8  # before the last one, to estimate the noise
_IN_A_ROW = 2  # looks that must agree
_HALF = 0.5  # share of the loss that a cause must explain

_ByRank = Mapping[int, StepTimes]


class Cause(Enum):
    """The reason why a rank is late."""

    COMPUTES = "longer computation than theirs"
    SLEEPS = "sleep between operations, as in a data loader, a file or a lock that it waits for"
    QUEUES = "too few processors for it: other processes use them while it is ready to run"
    UNKNOWN = ""  # the kernel does not count these times


@dataclass(frozen=True)
class Straggling:
    """Ranks that are late, the share of the others' time that this costs, and how long they were watched."""

    ranks: tuple[int, ...]
    cause: Cause
    lost: float
    steps: int
    seconds: float


class Stragglers:
    """Remembers the step times of all ranks for ten minutes."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._step_times: list[_ByRank] = []
        self._before: tuple[int, ...] = ()
        self._looks = 0

    def find(self, step_times: _ByRank, now_s: float) -> Straggling | None:
        """Take the present step times of all ranks. Returns the ranks that are late by a significant amount."""
        self._forget(now_s, is_all=bool(self._step_times) and not _goes_on(self._step_times[-1], step_times))
        self._times.append(now_s)
        self._step_times.append(dict(step_times))
        found = next((each for each in map(self._look, _WINDOWS_S) if each), None)
        ranks = () if found is None else found.ranks
        self._looks = self._looks + 1 if ranks == self._before else 1
        self._before = ranks
        return found if self._looks >= _IN_A_ROW else None

    def _forget(self, now_s: float, is_all: bool) -> None:
        gone = len(self._times) if is_all else bisect_right(self._times, now_s - _REMEMBERED_S)
        del self._times[:gone], self._step_times[:gone]
        old = bisect_right(self._times, now_s - _ALL_REMEMBERED_S) - 1
        while old > 0 and self._times[old] - self._times[old - 1] < _RARELY_S:
            del self._times[old], self._step_times[old]
            old -= 1

    def _look(self, window_s: float) -> Straggling | None:
        """Assess the last window by itself, and against earlier ones."""
        borders = self._borders(window_s)
        now, since = next(borders), next(borders, None)
        between = {} if since is None else {rank: times - since[rank] for rank, times in now.items()}
        if since is None or min(each.steps for each in between.values()) < _FEWEST_STEPS:
            return None
        late, others = _split(between)
        last, first = late[-1], others[0]
        lost = between[first].waiting - between[last].waiting
        if lost < max(_WORTH, _SURE * math.sqrt(between[first].variance + between[last].variance)):
            return None
        usual = _gaps([since, *borders], last, first)
        if len(usual) < _FEWEST_WINDOWS or lost < _SURE * _noise(usual):
            return None
        cause = _cause([between[rank] for rank in late], [between[rank] for rank in others], lost)
        return Straggling(tuple(sorted(late)), cause, lost, between[last].steps, window_s)

    def _borders(self, window_s: float) -> Iterator[_ByRank]:
        """Yield the step times at the ends of windows, the latest first."""
        at_s = self._times[-1]
        while (index := bisect_right(self._times, at_s)) > 0:
            yield self._step_times[index - 1]
            at_s = self._times[index - 1] - window_s


def _goes_on(before: _ByRank, now: _ByRank) -> bool:
    """Return False if ranks have come, gone or started again."""
    return before.keys() == now.keys() and all(now[rank].steps >= each.steps for rank, each in before.items())


def _split(step_times: _ByRank) -> tuple[list[int], list[int]]:
    """Split the ranks at the widest gap between their waits: the late ones, at most half, and the others."""
    by_wait = sorted(step_times, key=lambda rank: step_times[rank].waiting)
    indices = range(1, max(1, len(by_wait) // 2) + 1)
    index = max(indices, key=lambda at: step_times[by_wait[at]].waiting - step_times[by_wait[at - 1]].waiting)
    return by_wait[:index], by_wait[index:]


def _gaps(borders: Sequence[_ByRank], one: int, other: int) -> list[float]:
    """Return the difference of two ranks' waits in each window, since noise may last longer than a step."""
    pairs = [(later[one] - before[one], later[other] - before[other]) for later, before in pairwise(borders)]
    return [second.waiting - first.waiting for first, second in pairs]


def _noise(gaps: Sequence[float]) -> float:
    """Return the standard deviation of the gaps (the latest first), around two means if they have changed for good.

    Otherwise a rank that was not reported at once would hide behind its own slowness for as long as it is remembered.
    The time before the change needs as many windows as without a change.
    """
    count, whole, squares = len(gaps), sum(gaps), sum(gap * gap for gap in gaps)
    least = stdev(gaps)
    sum_since = 0.0
    for since in range(1, count - _FEWEST_WINDOWS + 1):
        sum_since += gaps[since - 1]
        rest = squares - sum_since**2 / since - (whole - sum_since) ** 2 / (count - since)
        least = min(least, math.sqrt(max(0.0, rest) / (count - 2)))
    return least


def _cause(late: Sequence[StepTimes], others: Sequence[StepTimes], lost: float) -> Cause:
    """Return the cause. The others sleep while they wait, so only their time in queues can be compared."""
    if min(each.at_s for each in late) <= 0:
        return Cause.UNKNOWN
    if _mean([each.queued for each in late]) - _mean([each.queued for each in others]) >= _HALF * lost:
        return Cause.QUEUES
    return Cause.SLEEPS if _mean([each.idle for each in late]) >= _HALF * lost else Cause.COMPUTES


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
