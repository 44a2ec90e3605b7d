"""Finds ranks that wait for each other for ever.

This rank, A, finds in three steps that B waits only for A:

    A  sees that B has arrived at X and A has not     asks B, and remembers X
    B  answers: all my threads wait, and only in X
    A  has submitted nothing meanwhile                so X still lacks A, and B waits for ever

If each operation that A's own threads wait for lacks such a B, A waits for ever, too. In any doubt there is no
deadlock, and FARANDOLE_TIMEOUT ends the job.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from farandole._runtime.diagnosis.facts import Need, Report, Wait

_MOST_ASKED = 2  # at a time: one rank that waits only for this one is enough
_HOLDS_S = 3.0  # how long an answer is valid: a signal handler may free the rank later


class _Question(NamedTuple):
    entered: int  # Report.entered at that time
    titles: frozenset[str]  # operations at which the rank had arrived and this one had not


class Deadlocks:
    """The ranks that this rank has asked, and those that are known to wait only for it."""

    def __init__(self) -> None:
        # By rank. Answers arrive in the order of the questions.
        self._questions: defaultdict[int, deque[_Question]] = defaultdict(deque)
        # By rank: Report.entered, for which the answer is valid, and when it arrived.
        self._stuck: dict[int, tuple[int, float]] = {}

    def asked(self, ranks: Iterable[int], report: Report) -> None:
        """Record a question to these ranks. Every question must be recorded."""
        titles = _titles_by_rank(report.needed)
        for rank in ranks:
            self._questions[rank].append(_Question(report.entered, frozenset(titles.get(rank, ()))))

    def on_answer(self, rank: int, entered: int, waits_only_for: Collection[str], now: float) -> None:
        """Record an answer, which counts only if this rank has submitted nothing since the question."""
        if not self._questions[rank]:
            return
        question = self._questions[rank].popleft()
        if waits_only_for and question.entered == entered and question.titles.issuperset(waits_only_for):
            self._stuck[rank] = entered, now

    def find(self, report: Report, now: float) -> dict[str, tuple[Wait, int]]:
        """Find the waits that never end if all threads here wait. By title, with a rank that waits for this one."""
        lost = {}
        for wait in report.waits:
            stuck = next((rank for rank in wait.missing if self._is_stuck(rank, report.entered, now)), None)
            if stuck is not None and not wait.ends_by_itself:
                lost[wait.title] = wait, stuck
        return lost

    def _is_stuck(self, rank: int, entered: int, now: float) -> bool:
        holds_while, reported_at = self._stuck.get(rank, (-1, now))
        return holds_while == entered and now - reported_at <= _HOLDS_S


def whom_to_ask(report: Report) -> list[int]:
    """Choose a few of the missing ranks that wait for this one: only they can be in a deadlock with it."""
    needing = _titles_by_rank(report.needed)
    ranks = sorted({rank for wait in report.waits for rank in wait.missing if rank in needing})
    return ranks[:_MOST_ASKED]


def with_mutual(report: Report) -> list[tuple[Wait, bool]]:
    """Pair each wait with whether a missing rank waits, or as far as is known may wait, for this one."""
    needing = _titles_by_rank(report.needed)
    is_unknown = not report.knows_who_needs_us
    return [
        (wait, not wait.ends_by_itself and (is_unknown or any(rank in needing for rank in wait.missing)))
        for wait in report.waits
    ]


def _titles_by_rank(needed: Iterable[Need]) -> Mapping[int, set[str]]:
    titles: dict[int, set[str]] = {}
    for need in needed:
        for rank in need.here:
            titles.setdefault(rank, set()).add(need.title)
    return titles
