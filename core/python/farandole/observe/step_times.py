"""Measures how long the steps of a rank take, and how long it waits in them for others, from its operations. Pure.

A group of operations ends when none is in flight any more. The rank's wait in a group is that of the operation that it
submitted last, because it computes during the earlier ones, for example in a backward pass. A step may have several
groups, for example if metrics are averaged. The next step begins when a name comes again. Unnamed groups are steps.

    | compute | a b c | loss |  compute  | a b c | loss |
              ^                          ^     '-' waits here, until all ranks have come to the last one
              '-------- one step --------'
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

from farandole.observe.records import Operation

_WARM_AFTER = 10  # steps: the first ones compile, and wait for ranks that started later


@dataclass(frozen=True)
class StepTimes:
    """Sums over the steps of a rank since it began. Subtract two of them for the steps in between."""

    steps: int = 0
    length_s: float = 0.0
    waited_s: float = 0.0
    squares: float = 0.0  # sum of the squared waits, in s²
    run_s: float = 0.0  # its threads' time on processors
    queued_s: float = 0.0  # its threads' time of waiting for a processor
    at_s: float = 0.0  # when these two were read
    longest_s: float = 0.0  # the longest wait, without those of the first steps

    def __sub__(self, earlier: StepTimes) -> StepTimes:
        between = StepTimes(*map(operator.sub, astuple(self), astuple(earlier)))
        return replace(between, longest_s=self.longest_s)

    @property
    def waiting(self) -> float:
        """The share of the time in which the rank waits for others."""
        return self.waited_s / self.length_s if self.length_s > 0 else 0.0

    @property
    def variance(self) -> float:
        """The squared standard error of `waiting`, which is a mean over the steps."""
        if self.steps < 2 or self.length_s <= 0:
            return float("inf")
        of_one = self.squares / self.steps - (self.waited_s / self.steps) ** 2
        return max(0.0, of_one) / self.steps / (self.length_s / self.steps) ** 2

    @property
    def queued(self) -> float:
        """The share of the time in which a thread was ready to run while others used the processors."""
        return self.queued_s / self.at_s if self.at_s > 0 else 0.0

    @property
    def idle(self) -> float:
        """The share of the time in which the rank neither ran nor was ready to run."""
        return max(0.0, 1.0 - self.run_s / self.at_s - self.queued) if self.at_s > 0 else 0.0


class Meter:
    """Adds up the steps of one rank."""

    def __init__(self) -> None:
        self._steps, self._length_ns, self._waited_ns = 0, 0, 0
        self._squares, self._longest_ns = 0.0, 0
        self._names: set[str] = set()  # of the current step
        self._waited_in_step_ns = 0
        self._epoch = 0  # in an elastic job
        self._reached = -1  # number of the last operation of the last step
        self._end_ns: int | None = None  # of that step

    def feed(self, operations: Sequence[Operation], epoch: int = 0) -> None:
        """Add a rank's new operations, which are sorted by number. Process sets other than 0 are ignored."""
        if epoch != self._epoch or (operations and operations[-1].number < self._reached):  # numbers have started again
            self._epoch, self._reached, self._end_ns = epoch, -1, None
        new = [each for each in operations if each.number > self._reached and each.process_set == 0]
        if new and self._reached >= 0 and not any(each.number <= self._reached for each in operations):
            self._end_ns = None  # operations in between were missed
        for group in _groups(new):
            if any(each.ended_ns is None for each in group):
                return
            self._add(group)

    def _add(self, group: Sequence[Operation]) -> None:
        last, end_ns = group[-1], max(each.ended_ns or 0 for each in group)
        all_came_ns = last.agreed_ns or last.ended_ns or last.submitted_ns
        self._reached = last.number
        if self._end_ns is not None:
            self._begin_step_with({each.name for each in group})
            waited_ns = max(0, all_came_ns - last.submitted_ns)
            self._length_ns += end_ns - self._end_ns
            self._waited_ns += waited_ns
            self._squares += ((self._waited_in_step_ns + waited_ns) ** 2 - self._waited_in_step_ns**2) / 1e18
            self._waited_in_step_ns += waited_ns
            if self._steps > _WARM_AFTER:
                self._longest_ns = max(self._longest_ns, waited_ns)
        self._end_ns = end_ns

    def _begin_step_with(self, names: set[str]) -> None:
        """Begin a step if a name comes again. Waits are similar in each step, but not within a step."""
        if not self._names or "" in names or not names.isdisjoint(self._names):
            self._steps += 1
            self._waited_in_step_ns = 0
            self._names = set()
        self._names |= names

    def times(self, run_ns: int = 0, queued_ns: int = 0, at_ns: int = 0) -> StepTimes:
        """Return the sums so far, with the kernel's times of the process."""
        return StepTimes(
            self._steps,
            self._length_ns / 1e9,
            self._waited_ns / 1e9,
            self._squares,
            run_ns / 1e9,
            queued_ns / 1e9,
            at_ns / 1e9,
            self._longest_ns / 1e9,
        )


def _groups(operations: Sequence[Operation]) -> list[list[Operation]]:
    """Split operations into groups, in which each was submitted while an earlier one was in flight."""
    groups: list[list[Operation]] = []
    end_ns = 0
    for each in operations:
        if not groups or each.submitted_ns > end_ns:
            groups.append([])
        groups[-1].append(each)
        if each.ended_ns is None:
            return groups
        end_ns = max(end_ns, each.ended_ns)
    return groups
