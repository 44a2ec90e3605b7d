"""The launcher's watch over a job that runs: steps of recorders, ranks that come late, sentences. No processes."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from farandole.observe.diagnosis import Rank
from farandole.observe.processes import Activity
from farandole.observe.records import Link, Operation, Recording, State
from farandole.observe.snapshot import Snapshot, snapshot_of
from farandole.observe.step_times import Meter, StepTimes
from farandole.observe.stragglers import Cause, Stragglers, Straggling
from farandole.observe.tails import Tails
from farandole.observe.watch import HostWatch, JobWatch

MS = 1_000_000
STEP_S = 0.1


def operation(
    number: int, at_ms: float, came_ms: float | None, end_ms: float | None, process_set: int = 0, name: str = "grad"
) -> Operation:
    def ns(at: float | None) -> int | None:
        return None if at is None else round(at * MS)

    return Operation(
        number, "allreduce", name, "[4]", "float32", process_set, number, 1, 16, "", round(at_ms * MS), ns(came_ms),
        None, ns(end_ms),
    )  # fmt: skip


def step_times_of(*operations: Operation) -> StepTimes:
    meter = Meter()
    meter.feed(operations)
    return meter.times()


def test_a_step_ends_where_nothing_is_in_flight_and_its_wait_is_that_of_its_last_operation() -> None:
    times = step_times_of(
        operation(0, 0, 1, 2),
        operation(1, 100, 140, 150),  # these two are one step: it computes beside the first
        operation(2, 120, 145, 160),
        operation(3, 200, 201, 202),
    )
    assert times.steps == 2
    assert (times.length_s, times.waited_s) == pytest.approx((0.200, 0.025 + 0.001))
    assert times.waiting == pytest.approx(0.13)


def test_a_step_goes_on_until_a_name_comes_again() -> None:
    """The ranks wait 20 ms for the gradient, and not at all for the loss behind it: the steps are alike."""
    operations = [operation(0, 50, 50, 51, name="loss")]
    for step in range(1, 5):
        at_ms = 100 * step
        operations.append(operation(2 * step, at_ms, at_ms + 20, at_ms + 30))
        operations.append(operation(2 * step + 1, at_ms + 50, at_ms + 50, at_ms + 51, name="loss"))
    times = step_times_of(*operations)
    assert (times.steps, times.waited_s) == (4, pytest.approx(0.08))
    assert times.variance == pytest.approx(0.0, abs=1e-9)


def test_a_step_that_is_not_over_is_counted_once_it_is() -> None:
    meter = Meter()
    meter.feed([operation(0, 0, 1, 2), operation(1, 100, None, None)])
    assert meter.times().steps == 0
    meter.feed([operation(0, 0, 1, 2), operation(1, 100, 180, 190)])
    assert (meter.times().steps, meter.times().waited_s) == (1, pytest.approx(0.08))
    meter.feed([operation(0, 0, 1, 2), operation(1, 100, 180, 190)])
    assert meter.times().steps == 1


def test_operations_that_were_not_seen_leave_a_gap_and_those_of_other_sets_are_left_out() -> None:
    meter = Meter()
    meter.feed([operation(0, 0, 1, 2), operation(1, 100, 101, 102)])
    meter.feed([operation(900, 90_000, 90_001, 90_002), operation(901, 90_100, 90_101, 90_102)])
    meter.feed([operation(900, 90_000, 90_001, 90_002), operation(901, 90_100, 90_101, 90_102)])
    assert (meter.times().steps, meter.times().length_s) == (2, pytest.approx(0.2))
    assert step_times_of(operation(0, 0, 1, 2), operation(1, 100, 190, 190, process_set=1)).steps == 0


Durations = Callable[[float, int], float]  # time, rank -> of a step


class Job:
    """Ranks whose steps take so long; what they do meanwhile is a share of a processor each."""

    def __init__(
        self, size: int, durations: Durations, runs: Sequence[float] = (), queues: Sequence[float] = ()
    ) -> None:
        self.step_times = {rank: StepTimes() for rank in range(size)}
        self._durations, self._runs, self._queues = durations, runs, queues
        self.now_s, self.steps = 0.0, 0

    def step(self) -> None:
        took = [self._durations(self.now_s, rank) for rank in self.step_times]
        self.now_s, self.steps = self.now_s + max(took), self.steps + 1
        for rank, times in self.step_times.items():
            waited_s = max(took) - took[rank]
            self.step_times[rank] = StepTimes(
                times.steps + 1,
                times.length_s + max(took),
                times.waited_s + waited_s,
                times.squares + waited_s**2,
                self._runs[rank] * self.now_s if self._runs else 0.0,
                self._queues[rank] * self.now_s if self._queues else 0.0,
                self.now_s if self._runs else 0.0,
            )

    def watched(self, seconds: float) -> tuple[Straggling, float, int] | None:
        """The first that is found, when, and after how many steps."""
        watch, looks = Stragglers(), 0
        while self.now_s < seconds:
            self.step()
            if self.now_s >= 0.5 * looks:
                looks += 1
                if found := watch.find(self.step_times, self.now_s):
                    return found, self.now_s, self.steps
        return None


def noisy(noise: float, slow: int = -1, since_s: float = 0.0) -> Durations:
    draw = random.Random(7)

    def duration(now_s: float, rank: int) -> float:
        late = 1.2 if rank == slow and now_s >= since_s else 1.0
        return STEP_S * late * max(0.1, draw.gauss(1.0, noise))

    return duration


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
def test_a_rank_that_becomes_slower_by_a_fifth_is_named_within_20_steps(size: int, noise: float) -> None:
    found = Job(size, noisy(noise, slow=1, since_s=30.0)).watched(60.0)
    assert found is not None
    straggling, at_s, _ = found
    assert straggling.ranks == (1,)
    assert (at_s - 30.0) / (1.2 * STEP_S) <= 22  # looks come every 0.5 s, which is 4 steps
    assert 0.08 < straggling.lost < 0.25


def test_a_rank_that_is_slower_from_the_beginning_is_named_too() -> None:
    found = Job(4, noisy(0.03, slow=2)).watched(60.0)
    assert found is not None
    assert found[0].ranks == (2,)


def test_a_rank_that_was_not_named_at_once_is_named_later() -> None:
    """The machine is so busy that nobody looks in the first seconds of its slowness."""
    job, watch, next_s = Job(2, noisy(0.02, slow=1, since_s=12.0)), Stragglers(), 0.0
    found = None
    while found is None and job.now_s < 40.0:
        job.step()
        if job.now_s >= next_s and not 12.0 < job.now_s < 17.0:
            next_s = job.now_s + 1.2
            found = watch.find(job.step_times, job.now_s)
    assert found is not None and found.ranks == (1,)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
def test_noise_is_nobodys_fault(noise: float) -> None:
    assert Job(4, noisy(noise)).watched(300.0) is None


def test_noise_that_lasts_for_seconds_is_known_after_a_while() -> None:
    """Other programs that come and go, on one host and then on another."""
    draw, drift = random.Random(3), [0.0] * 4

    def duration(now_s: float, rank: int) -> float:
        drift[rank] = 0.9 * drift[rank] + 0.436 * draw.gauss(0.0, 0.02)
        return STEP_S * (1.0 + drift[rank])

    assert Job(4, duration).watched(300.0) is None


def test_two_late_ranks_are_named_together() -> None:
    found = Job(6, lambda now_s, rank: STEP_S * (1.3 if rank in (1, 4) and now_s > 20 else 1.0)).watched(60.0)
    assert found is not None
    assert found[0].ranks == (1, 4)


@pytest.mark.parametrize(
    ("runs", "queues", "cause"),
    [
        ([0.5, 0.95], [0.0, 0.0], Cause.COMPUTES),
        ([0.5, 0.5], [0.0, 0.0], Cause.SLEEPS),
        ([0.5, 0.6], [0.0, 0.35], Cause.QUEUES),
        ([], [], Cause.UNKNOWN),
    ],
)
def test_the_kernels_times_tell_why(runs: list[float], queues: list[float], cause: Cause) -> None:
    found = Job(2, noisy(0.01, slow=1, since_s=20.0), runs, queues).watched(60.0)
    assert found is not None
    assert found[0].cause is cause


def test_ranks_that_begin_anew_are_no_straggler() -> None:
    watch, job = Stragglers(), Job(2, noisy(0.0))
    for look in itertools.count():
        for _ in range(5):
            job.step()
        assert watch.find(job.step_times, job.now_s) is None
        if look == 40:
            job.step_times[1] = StepTimes()  # another process
        if look == 80:
            break


# ---- sentences


def rank(number: int, *operations: Operation, size: int = 2, activity: Activity = Activity.SLEEPING) -> Rank:
    recording = Recording("run", number, size, 70 + number, 1, State.RUNNING, -1, "", 0, len(operations), 0, operations)
    return Rank(recording, activity)


def stuck(waited_s: float, now_s: float) -> tuple[Rank, Rank]:
    now_ms = now_s * 1000
    waits = operation(5, now_ms - waited_s * 1000, None, None)
    last = operation(4, now_ms - waited_s * 1000 - 100, now_ms, now_ms - waited_s * 1000)
    return rank(0, last, waits), rank(1, last)


def test_a_rank_counts_as_stuck_once_its_doing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence about it says what it does, which takes two looks at its process."""
    now_s = time.monotonic() + 10
    watch = HostWatch({}, "run", {})
    for seconds, activity in enumerate([Activity.UNKNOWN, Activity.SLEEPING]):
        ranks = [replace(each, activity=activity) for each in stuck(2.0, now_s)]
        monkeypatch.setattr(Tails, "look", lambda _, ranks=ranks: [*ranks])
        snapshot = watch.look(now_s + 10 * seconds)
        assert snapshot is not None
        assert snapshot.stuck == (tuple(ranks) if activity is Activity.SLEEPING else ())


STEADY = {number: StepTimes(100, 10.0) for number in (0, 1)}


def test_a_wait_is_told_when_it_is_longer_than_is_usual() -> None:
    watch = JobWatch()
    assert watch.hear("", Snapshot(STEADY, stuck=stuck(4.0, 100.0)), 100.0, 2) == []
    (sentence,) = watch.hear("", Snapshot(STEADY, stuck=stuck(5.5, 101.5)), 101.5, 2)
    assert sentence.startswith("rank 1 (pid 71) has not called allreduce 'grad'")
    assert "rank 0 has waited 5.5 s" in sentence
    assert watch.hear("", Snapshot(STEADY, stuck=stuck(6.0, 102.0)), 102.0, 2) == []
    assert len(watch.hear("", Snapshot(STEADY, stuck=stuck(66.0, 162.0)), 162.0, 2)) == 1
    assert watch.hear("", Snapshot(STEADY, stuck=stuck(126.0, 222.0)), 222.0, 2) == []


@pytest.mark.parametrize("times", [StepTimes(3, 0.3), StepTimes(100, 300.0, longest_s=40.0)])
def test_the_first_steps_and_a_job_that_waits_for_long_now_and_then_have_more_time(times: StepTimes) -> None:
    assert JobWatch().hear("", Snapshot({0: times, 1: times}, stuck=stuck(8.0, 100.0)), 100.0, 2) == []
    assert JobWatch().hear("", Snapshot({0: times, 1: times}, stuck=stuck(130.0, 100.0)), 100.0, 2) != []


def test_who_raises_the_time_of_the_ranks_warnings_is_told_later() -> None:
    assert JobWatch().hear("", Snapshot(STEADY, stuck=stuck(50.0, 100.0), warn_after_s=60.0), 100.0, 2) == []
    assert JobWatch().hear("", Snapshot(STEADY, stuck=stuck(61.0, 100.0), warn_after_s=60.0), 100.0, 2) != []


def test_nothing_is_said_before_all_hosts_are_heard() -> None:
    here, there = stuck(9.0, 100.0)
    watch = JobWatch({0: "h0", 1: "h1"})
    assert watch.hear("h0", Snapshot({0: STEADY[0]}, stuck=(here,)), 100.0, 2) == []
    assert len(watch.hear("h1", Snapshot({1: STEADY[1]}, stuck=(there,)), 100.5, 2)) == 1


def test_two_hosts_that_are_one_machine_name_a_rank_once() -> None:
    watch = JobWatch()
    assert watch.hear("h0", Snapshot(STEADY, stuck=stuck(4.0, 100.0)), 100.0, 2) == []
    twice = watch.hear("h1", Snapshot(STEADY, stuck=stuck(9.0, 100.5)), 100.5, 2)
    once = JobWatch().hear("", Snapshot(STEADY, stuck=stuck(9.0, 100.5)), 100.5, 2)
    assert twice == once and len(once) == 1


def test_ranks_of_a_later_epoch_are_named_in_the_order_of_start(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = time.monotonic() + 10
    ranks = [replace(each, recording=replace(each.recording, epoch=1)) for each in stuck(20.0, now_s)]
    monkeypatch.setattr(Tails, "look", lambda _: [*ranks])
    snapshot = HostWatch({}, "run", {1: (1, 4)}).look(now_s)
    assert snapshot is not None
    assert snapshot.epoch == 1 and list(snapshot.step_times) == [1, 4]
    (sentence,) = JobWatch().hear("", snapshot, now_s, 2)
    assert sentence.startswith("rank 4 (pid ") and "rank 1 has waited" in sentence


def test_what_a_host_saw_of_an_earlier_epoch_says_nothing_of_this_one() -> None:
    watch = JobWatch()
    assert watch.hear("h0", Snapshot({0: STEADY[0], 1: STEADY[1]}, stuck=stuck(9.0, 100.0)), 100.0, 3) == []
    (here, _) = stuck(9.0, 101.0)
    assert watch.hear("h1", Snapshot({2: STEADY[0]}, stuck=(here,), epoch=1), 101.0, 3) == []


def test_a_straggler_is_named_with_its_host() -> None:
    watch, job = JobWatch({0: "h0", 1: "h1"}), Job(2, noisy(0.01, slow=1, since_s=20.0), [0.8, 0.99])
    sentences: list[str] = []
    while job.now_s < 40.0 and not sentences:
        for _ in range(5):
            job.step()
        sentences = watch.hear("", Snapshot(job.step_times), job.now_s, 2)
    (sentence,) = sentences
    assert sentence.startswith("rank 1 on h1 makes the others wait for 1")
    assert "longer computation" in sentence


def test_a_sight_travels_as_a_message() -> None:
    ranks = stuck(3.0, 100.0)
    times = StepTimes(3, 1.5, 0.25, 0.1, 2.0, 0.5, 9.0, 0.2)
    sent = Snapshot({0: times}, {(0, 3): Link(3, 10, 20, 30, 4, 50)}, ranks, epoch=2)
    message = json.loads(json.dumps(sent.message(0)))
    got = snapshot_of(message, 7 * 1000 * MS)
    assert (got.step_times, got.links, got.epoch) == (sent.step_times, sent.links, sent.epoch)
    assert [each.number for each in got.stuck] == [0, 1]
    (before,), (after,) = ranks[0].pending, got.stuck[0].pending
    assert after.title == before.title
    assert (after.submitted_ns - before.submitted_ns) / 1e9 == pytest.approx(7.0)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"step_times": [[0]], "links": [], "stuck": [], "warn_after_s": 0},
        {"step_times": [], "stuck": [{"run": ""}]},
    ],
)
def test_nonsense_is_no_snapshot(message: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        snapshot_of(message, 0)
