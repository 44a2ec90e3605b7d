"""The diagnosis of one rank: takes the core's news, and calls the core to warn, ask, answer or end the job."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from farandole._runtime.diagnosis import deadlocks, stacks
from farandole._runtime.diagnosis.delays import Delays
from farandole._runtime.diagnosis.facts import Report, longest
from farandole._runtime.diagnosis.sentences import End, LastStack, Sentences, need_of

_LOOK_AGAIN_S = 1.0
_SAME_STACKS_S = 0.5  # many ranks may ask at once, so stacks are reused for this long


class Diagnosis:
    """Thread safety: one thread. `core`: as in `_core.pyi`, or what stands for it in a test."""

    def __init__(
        self, rank: int, core: Any, clock: Callable[[], float], look: Callable[[], str] = stacks.of_this_process
    ) -> None:
        self._core, self._clock, self._look = core, clock, look
        self._sentences = Sentences(rank, core.title_of_rank)
        self._delays = Delays()
        self._deadlocks = deadlocks.Deadlocks()
        self._reported: set[int] = set()  # late ranks whose stacks are shown when they arrive
        self._looked = self._answered = clock() - _LOOK_AGAIN_S
        self._stacks = ""

    def on_news(self, report: Report | None, askers: Sequence[int], answers: Sequence[tuple[int, int, str]]) -> None:
        """Handle everything that has arrived since the last call."""
        for rank, entered, text in answers:
            self._on_answer(rank, entered, text)
        if askers:
            self._reply(askers)
        if report is not None:
            self._on_report(report)

    # ---- this rank waits

    def _on_report(self, report: Report) -> None:
        now = self._clock()
        if report.is_overdue:
            self._end(False, self._sentences.deadline(longest(report.waits), report.needed, now), report)
            return
        waits = [(wait, False) for wait in report.waits]
        waiting = self._core.only_waits() if report.waits else None
        if waiting is not None and waiting[1]:  # no thread may submit without this library's knowledge
            if now - self._looked >= _LOOK_AGAIN_S:
                self._looked = now
                if end := self._find_deadlock(report, now):
                    self._end(True, end, report)
                    return
                self._ask(deadlocks.whom_to_ask(report), report)
            waits = deadlocks.with_mutual(report)
        late = []
        for delay in self._delays.news(waits, report.warn_after_ms, now):
            if delay.is_ours_to_tell:
                self._core.warn(self._sentences.warning(delay, report.needed))
                self._reported.update(delay.ranks)
            late += delay.ranks
        self._ask(late, report)

    def _find_deadlock(self, report: Report, now: float) -> End | None:
        lost = self._deadlocks.find(report, now)
        if not lost:
            return None
        _, calls = self._waits_only_for(report.entered)
        if not calls or not lost.keys() >= calls.keys():
            return None
        wait, other = lost[next(iter(calls))]
        found = need_of([other], report.needed)
        return found and self._sentences.deadlock(wait, wait.missing, other, found[1])

    def _ask(self, ranks: Sequence[int], report: Report) -> None:
        asked = [rank for rank in ranks if rank >= 0]  # without the constants that stand in for ranks
        if asked:
            self._deadlocks.asked(asked, report)
            self._core.ask_ranks(asked)

    def _end(self, is_deadlock: bool, end: End, report: Report) -> None:
        self._core.end_world(is_deadlock, end.culprit, end.why, report.entered)

    # ---- questions and answers

    def _waits_only_for(self, entered: int | None = None) -> tuple[str, dict[str, str]]:
        """Return the stacks, and the calls by title that all threads wait in; none if a thread may call something.

        The threads' operations must be the same before and after their stacks are taken. `entered`: if this rank has
        submitted operations since, there are none either.
        """
        before = self._core.only_waits()
        text = self._look()
        if before is None or not before[1] or before != self._core.only_waits() or entered not in (None, before[0]):
            return text, {}
        return text, dict(before[1].values()) if stacks.no_others_may_call(text, before[1]) else {}

    def _reply(self, askers: Sequence[int]) -> None:
        now = self._clock()
        calls: dict[str, str] = {}  # must be current, so unlike stacks they are never reused
        if now - self._answered >= _SAME_STACKS_S:
            self._answered = now
            self._stacks, calls = self._waits_only_for()
        text = json.dumps({"stacks": stacks.cut(self._stacks), "waits_only_for": calls})
        for asker in askers:
            self._core.reply(asker, text)

    def _on_answer(self, rank: int, entered: int, text: str) -> None:
        now = self._clock()
        # If its Python does not respond, the core sends only stacks.
        answer: dict[str, Any] = json.loads(text) if text.startswith("{") else {"stacks": text, "waits_only_for": {}}
        where, calls = answer["stacks"], answer["waits_only_for"]
        self._deadlocks.on_answer(rank, entered, calls, now)
        if not where:
            return
        before = self._sentences.last_stacks.get(rank)
        # Of two questions within a moment the rank looks at its calls for the first one only.
        known = before.calls if before is not None and not calls else calls
        self._sentences.last_stacks[rank] = LastStack(stacks.users_frame(where), now, known)
        if rank in self._reported:
            self._reported.remove(rank)
            self._core.warn(self._sentences.stacks(rank, where))
