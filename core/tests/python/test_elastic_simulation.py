"""Simulated histories of jobs whose members decide about their epochs; decisions made wrong on purpose are found.

FARANDOLE_LONG=1 runs 100,000 histories, FARANDOLE_SEEDS another number; FARANDOLE_SEED=17 repeats one, and shows it.
"""

import os
from collections import Counter

import pytest
from elastic_simulation import State, Violation, history
from farandole._elastic.epochs import Epoch, MembershipError
from farandole._elastic.majority import Deciding, Majority
from farandole._elastic.votes import NO_BALLOT, Kind

SEEDS = int(os.environ.get("FARANDOLE_SEEDS") or (100_000 if os.environ.get("FARANDOLE_LONG") else 1000))
SEED = os.environ.get("FARANDOLE_SEED")
MOST_SEEDS = 5000  # for a decision that is wrong

pytestmark = pytest.mark.timeout(3600 if SEEDS > 1000 else 120)


def test_histories_keep_the_rules():
    seen: Counter[str] = Counter()
    for seed in [int(SEED)] if SEED else range(SEEDS):
        done = history(seed)
        if SEED:
            print("\n".join(done.log))
        running = [process for process in done.processes if process.state == State.RUNNING]
        seen["goes on"] += bool(running)
        seen["goes on after several epochs"] += bool(running) and running[0].epoch.number > 1
        seen["has parts that end"] += any(process.why for process in done.processes)
        seen["ends"] += not running
    print(dict(seen))
    if not SEED:
        assert all(count > SEEDS / 20 for count in seen.values()), "the plans are one-sided"


# ---- Decisions made wrong on purpose ---------------------------------------------------------------------------------


class HalfIsEnough(Deciding):
    def _is_quorum(self, numbers, fence):
        return super()._is_quorum(numbers, fence) or 2 * len(set(numbers)) >= len(self.last.members)


class SilentIsDead(Deciding):
    def _is_quorum(self, numbers, fence):
        silent = {number for number in self._peers if self._is_silent(number, self.next_look_s - 1)}
        return super()._is_quorum(numbers, fence | silent | {-1})


class ForgetsItsVote(Deciding):
    def _promise(self, sender, ballot, now):
        self._voted, self._value = NO_BALLOT, None
        super()._promise(sender, ballot, now)


class TellsNobody(Deciding):
    def _decide(self, value, now):
        self.decided, self._decided_s, self._proposal = value, now, None

    def _send(self, number, kind, *arguments, **fields):
        if kind != Kind.DECIDED:
            super()._send(number, kind, *arguments, **fields)


class WaitsForNobody(Deciding):
    def _is_ready(self, now):
        return self._is_quorum(self._heard(now), frozenset(self.dead))


class LeavesTheDeadIn(Deciding):
    def _free_value(self, now):
        found = super()._free_value(now)
        return Epoch(found.number, tuple(sorted({*found.members, *self.dead})), found.store)


class NeverTakesOver(Deciding):
    def _consider(self, now):
        if self._me == self.last.members[0]:
            super()._consider(now)


def with_part(part):
    class Made(Majority):
        def begin(self, report, now):
            job = list(self._job.values())
            last = self.history[report.epoch]
            self.deciding = part(job, last, report, self.history, self.dead, self._timing, now)
            return self.deciding

    return Made


class GoesOnOutside(Majority):
    def _check(self, epoch):
        pass


WRONG = {
    part.__name__: with_part(part)
    for part in (
        HalfIsEnough,
        SilentIsDead,
        ForgetsItsVote,
        WaitsForNobody,
        LeavesTheDeadIn,
        TellsNobody,
        NeverTakesOver,
    )
}
WRONG["GoesOnOutside"] = GoesOnOutside
NEEDS_A_HOSTILE_NETWORK = {"ForgetsItsVote"}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_decision_is_found(wrong):
    hostile = wrong in NEEDS_A_HOSTILE_NETWORK
    for seed in range(MOST_SEEDS):
        try:
            history(seed, WRONG[wrong], hostile)
        except (Violation, AssertionError, MembershipError, KeyError) as error:
            print(f"seed {seed}: {str(error).splitlines()[0]}")
            return
    pytest.fail(f"{MOST_SEEDS} histories find nothing wrong")
