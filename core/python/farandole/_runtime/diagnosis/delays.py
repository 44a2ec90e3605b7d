"""Decides which late ranks to warn of: one warning for each, however many operations wait for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from farandole._runtime.diagnosis.facts import UNKNOWN_RANKS, Wait

_AGAIN_S = 60.0
# Rank 0 has so long to name the missing ranks before a warning without names. A rank that waits for this one has as
# long to answer that it waits for nothing else: then an error ends the job, and no warning is needed.
_ANSWER_MS = 3000


@dataclass
class Delay:
    """The content of a warning: all operations that wait for the same ranks."""

    ranks: list[int] = field(default_factory=list)  # ascending
    first: Wait | None = None  # the longest
    operations: int = 0
    is_ours_to_tell: bool = False  # no other rank reports at least one of the waits
    is_mutual: bool = False  # in at least one of the waits, a missing rank may wait for this one

    @property
    def title(self) -> str:
        """A name for messages, such as "allreduce 'w'" or "120 operations, the first of them allreduce 'w',"."""
        assert self.first is not None
        if self.operations == 1:
            return self.first.title
        return f"{self.operations} operations, the first of them {self.first.title},"

    def add(self, wait: Wait, is_mutual: bool) -> None:
        """Add another wait for these ranks."""
        self.operations += wait.operations
        self.is_ours_to_tell = self.is_ours_to_tell or not wait.is_reported_by_peer
        self.is_mutual = self.is_mutual or is_mutual
        if self.first is None or self.first.waited_ms < wait.waited_ms:
            self.first = wait

    def is_like(self, other: Delay) -> bool:
        """Whether one warning can cover both."""
        same = self.operations == other.operations and self.is_ours_to_tell == other.is_ours_to_tell
        return same and self.first is other.first


class Delays:
    """Remembers which late ranks were reported."""

    def __init__(self) -> None:
        self._reported: dict[int, tuple[float, bool]] = {}  # by late rank: when, and whether this rank reported it

    def news(self, waits: Iterable[tuple[Wait, bool]], warn_after_ms: int, now: float) -> list[Delay]:
        """Find the ranks that are late by more than the limit, or by a little more if an answer may explain it.

        Skips ranks that were reported in the last minute and have been late since, unless only now it is this rank that
        must report them. Each wait comes with whether a missing rank may wait for this one.
        """
        news: list[Delay] = []
        reported = {}
        by_rank: dict[int, Delay] = {}
        for wait, is_mutual in waits:
            for rank in wait.missing:
                by_rank.setdefault(rank, Delay()).add(wait, is_mutual)
        for rank, delay in sorted(by_rank.items()):
            assert delay.first is not None
            has_answer = rank != UNKNOWN_RANKS and not delay.is_mutual
            if delay.first.waited_ms < warn_after_ms + (0 if has_answer else _ANSWER_MS):
                continue
            when, was_ours = self._reported.get(rank, (now - _AGAIN_S, False))
            is_known = now - when < _AGAIN_S and (was_ours or not delay.is_ours_to_tell)
            reported[rank] = (when, was_ours) if is_known else (now, delay.is_ours_to_tell)
            if not is_known:
                _merge(rank, delay, news)
        self._reported = reported  # ranks that have arrived are dropped, so they are news when they are late again
        return news


def _merge(rank: int, delay: Delay, delays: list[Delay]) -> None:
    """Add the rank to the warning about ranks that are late in the same way, if there is one."""
    for each in delays:
        if each.is_like(delay):
            each.ranks.append(rank)
            return
    delay.ranks.append(rank)
    delays.append(delay)
