"""The loop that runs a job: output of the ranks, their deaths, the user's signals, the end.

One thread; it never blocks but in select. Two things wake it: a pipe (signals as their number, writers as 0) and the
lifeline to the outer process (guard.py). ending.py and failure_report.py decide; this file acts, through `Ranks`,
which knows where the ranks run: processes.py on this host, head/cluster.py on several.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from farandole._start.membership_channel import Message
from farandole.launch import guard, rank_exit
from farandole.launch.ending import Ending
from farandole.launch.events import JobEnded, MembershipChanged, RankEnded, RanksLate
from farandole.launch.head import failure_report
from farandole.launch.membership import Answer, Lease
from farandole.launch.placement import Placement
from farandole.launch.rank_slots import RankSlots
from farandole.launch.relay import OutputOptions, Pipe, Relay
from farandole.observe.snapshot import Snapshot, snapshot_of
from farandole.observe.watch import JobWatch

KILL_EVERY_SECONDS = 0.02
RESTART = -1  # the start is repeated with fewer hosts
_LINES_IN_VIEW = 8  # of others after a rank's last line, so that the user still sees it
_TRACEBACKS_IN_VIEW = 40  # likewise after a traceback, which is easier to find
_LEAVE_AFTER_SECONDS = 1.0  # a job that was interrupted waits so long for a stuck stdout
ENDING = guard.ENDING
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
_OF_THE_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)  # a terminal sends these to whole process groups


class Ranks(Protocol):
    """The ranks of a supervisor, on this host or others."""

    @property
    def anything_left(self) -> bool:
        """Return whether a process of the job may be alive."""

    @property
    def running(self) -> int:
        """The number of running ranks."""

    def reap(self, now: float) -> None:
        """Call `Supervisor.note_death` for each rank that has ended since the last call."""

    def tell(self, signum: int, groups: bool = False, spare_ending: bool = False) -> None:
        """Signal the ranks. `groups`: also what they started; `spare_ending`: except ranks that end by themselves."""

    def kill(self) -> None:
        """SIGKILL all processes that are left. Called repeatedly until none is."""

    def act(self, now: float) -> None:
        """Do whatever is due now."""

    def next_due(self, now: float) -> float | None:
        """Seconds until `act` must be called."""


class Members(Protocol):
    """The ranks of an elastic job."""

    def evict(self, rank: int) -> None:
        """SIGKILL a rank that the others wait for in vain, and what it has started."""

    def tell_member(self, rank: int, message: Message) -> None:
        """Send a rank a message about the membership."""

    def start_newcomer(self, placement: Placement) -> None:
        """Start a rank that joins the job. Raises OSError if no process can be started."""


@dataclass
class Supervisor:
    """Runs one job to its end. Create it before the ranks, set `ranks`, call `run` once.

    Some ranks have their own way to take the user's signals (`on_signal`; 0 is a writer that has got on), the end of
    the outer process (`on_orphaned`), and the end of the job (`conclude`, which returns None where it begins anew).
    """

    options: OutputOptions
    grace_s: float
    lifeline: int
    lease: Lease | None = None  # of an elastic job that this launcher decides about
    slots: RankSlots | None = None  # of one that gets new ranks for those that it has lost
    ranks: Ranks = field(init=False)
    members: Members = field(init=False)  # where there is a lease
    on_signal: Callable[[int], None] = field(init=False)
    on_orphaned: Callable[[], None] = field(init=False)
    conclude: Callable[[], JobEnded | None] = field(init=False)
    where_output_is: Callable[[int], str] = lambda _rank: ""  # for a rank whose output does not come through us
    deaths: list[rank_exit.Death] = field(default_factory=list)
    survived: list[rank_exit.Death] = field(default_factory=list)  # failures without which an elastic job has gone on
    suspended: bool = False
    _hurried: bool = False  # the user, or the death of the launcher, wants this to end
    _stdout_warned: bool = False
    _generation: int = 0  # of the members of an elastic job
    _why_no_more: str = ""  # the sentence about an elastic job that could not go on without a rank

    def __post_init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = os.pipe()
        for descriptor in (self._wake_reader, self._wake_writer):
            os.set_blocking(descriptor, False)
        self.selector.register(self._wake_reader, selectors.EVENT_READ, self._hear)
        self.selector.register(self.lifeline, selectors.EVENT_READ, self._lose_outer_process)
        self.ending = Ending(self.grace_s)
        self._watch = JobWatch(self.options.hosts)
        self.relay = Relay(self.options, self.selector, self.wake)
        self.on_signal, self.on_orphaned, self.conclude = self.obey_signal, self.launcher_gone, self.decide
        self._catch_signals()

    # The loop

    def run(self) -> int:
        """Run until no process of the job is left and all output is written. Returns the exit code of the job."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, guard.HANDLED)
        self.relay.start()
        while self.ranks.anything_left and not self.ending.given_up(time.monotonic()):
            self._turn()
        gone_at = time.monotonic()
        while self.relay.pipes.open and not self._leaves(gone_at):
            self.relay.pipes.drain(time.monotonic())
            self._turn()
        ended = self.conclude()
        if ended is not None:
            self.relay.end(ended)
        last_said_at = time.monotonic()
        while not self.relay.flushed and not self._leaves(last_said_at):
            self._turn()
        return RESTART if ended is None else ended.exit_code

    def _turn(self) -> None:
        for key, _ in self.selector.select(self._wait_at_most()):
            if isinstance(key.data, Pipe):
                self.relay.pipes.read(key.data, time.monotonic())
            else:
                key.data()
        now = time.monotonic()
        self.ranks.reap(now)
        self.relay.tick(now)
        self.ranks.act(now)
        self._act(now)

    def _wait_at_most(self) -> float | None:
        now = time.monotonic()
        times = [self.relay.wait_at_most(), self.ranks.next_due(now)]
        times.append(None if self.lease is None else self.lease.next_due(now))
        if self.slots is not None and self.lease is not None:
            times += [self.slots.next_due(now, self.ranks.running), self.slots.next_overdue(now, self.lease.timeout_s)]
        if not self.ranks.anything_left or self.ending.kill_due(now):
            times.append(KILL_EVERY_SECONDS)
        else:
            times.append(self.ending.wait_at_most(now))
        return min((seconds for seconds in times if seconds is not None), default=None)

    def wake(self) -> None:
        """End the wait of the loop. Any thread."""
        with contextlib.suppress(BlockingIOError):  # full: it is awake already
            os.write(self._wake_writer, b"\0")

    def _leaves(self, since: float) -> bool:
        """Give up on a reader of stdout that is stuck."""
        return self._hurried and time.monotonic() >= since + _LEAVE_AFTER_SECONDS

    def _lose_outer_process(self) -> None:
        self.selector.unregister(self.lifeline)
        self._hurried = True
        self.on_orphaned()

    def launcher_gone(self) -> None:
        """The outer process is gone: kill the ranks."""
        self.ending.launcher_gone(time.monotonic())

    def say_of_snapshot(self, source: str, snapshot: Snapshot, now: float, ranks: int) -> None:
        """Tell the user which rank makes the others wait. `source`: the host; `ranks`: those running on all hosts.

        In an elastic job only members of the epoch count: others may run before they join and after they leave.
        """
        if self.lease is not None:
            ranks = len(self.lease.living)
        for sentence in self._watch.hear(source, snapshot, now, ranks):
            self.relay.say(f"farandole: {sentence}.")
            self.relay.emit(RanksLate(sentence))

    def note_snapshot(self, snapshot: Snapshot, now: float) -> None:
        """A snapshot of the ranks of this host is there."""
        self.say_of_snapshot("", snapshot, now, self.ranks.running)

    def hear_snapshot(self, source: str, message: Message, ranks: int) -> None:
        """Another host has sent a snapshot. An invalid one is ignored."""
        now = time.monotonic()
        with contextlib.suppress(KeyError, TypeError, ValueError):
            self.say_of_snapshot(source, snapshot_of(message, round(now * 1e9)), now, ranks)

    # Signals

    def _catch_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        for signum in (*guard.HANDLED, signal.SIGCHLD):
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:  # nohup
                signal.signal(signum, lambda *_: None)

    def _hear(self) -> None:
        for signum in os.read(self._wake_reader, 4096):
            self.on_signal(signum)

    def obey_signal(self, signum: int) -> None:
        """Handle a signal from the user."""
        if signum in ENDING:
            self._hurried = True
            if self.ending.interrupted(signum, time.monotonic()):
                self.ranks.tell(signum, groups=signum in _OF_THE_KEYBOARD)
        elif signum in _PASSED_ON:
            self.ranks.tell(signum)
        elif signum == signal.SIGTSTP:
            self.suspended = True
            self.ranks.tell(signal.SIGSTOP, groups=True)
        elif signum == signal.SIGCONT:
            self.go_on()

    def go_on(self) -> None:
        """Continue the ranks that SIGTSTP has stopped."""
        self.suspended = False
        self.ranks.tell(signal.SIGCONT, groups=True)

    # Deaths and the end

    def note_death(self, death: rank_exit.Death) -> None:
        """A rank has ended."""
        place, is_survived, others = death.placement, self._survives(death), self.ranks.running
        self.relay.emit(RankEnded(place.rank, place.host, death.pid, death.code, death.ran_s, death.asked, is_survived))
        if is_survived:
            self.survived.append(death)
            if self.slots is not None:
                self.slots.lost(death.placement.rank, time.monotonic())
            is_member = self.lease is not None and death.placement.rank in self.lease.members
            are_enough = self.lease is None or not is_member or self.lease.can_spare([death.placement.rank])
            self.relay.say(failure_report.describe_survived(death, others, are_enough))
        else:
            self.deaths.append(death)
            # Another rank, which failed because of this one, may have been seen first.
            if self.lease is not None and not self._why_no_more and death.failed and not _is_mistake(death):
                self._why_no_more = f"{self.lease.reason_against(death.placement.rank)}."
            if death.failed:
                self.ending.rank_failed(time.monotonic())
            if self.options.verbose:
                self.relay.say(failure_report.describe_end(death, others))
        if self.lease is not None:
            self._note_end_without_error(death)
            if death.failed and death not in self.survived:
                self.answer(self.lease.give_up(self.lease.reason_against(death.placement.rank)))
            self.answer(self.lease.end(death.placement.rank))

    # Elastic jobs

    def _survives(self, death: rank_exit.Death) -> bool:
        """Return whether the job goes on without this rank. An error of the program would happen again."""
        if self.lease is None or self.ending.began_at is not None or not death.failed:
            return False
        return self.lease.survives(death.placement.rank, _is_mistake(death))

    def _note_end_without_error(self, death: rank_exit.Death) -> None:
        """A rank that has left may be replaced; if its program has finished, the others will finish too."""
        if self.slots is not None and self.lease is not None and death.code == 0:
            if self.lease.has_left(death.placement.rank):
                self.slots.lost(death.placement.rank, time.monotonic())
            elif self.lease.has_finished(death.placement.rank):
                self.slots.stop()

    def hear_member(self, rank: int, message: Message) -> None:
        """A rank has sent a message about the membership of its elastic job."""
        if self.slots is not None and message["kind"] == "join":
            self.slots.came(rank)
        if self.lease is not None:
            with contextlib.suppress(KeyError, TypeError, ValueError):  # an invalid message is ignored
                self.answer(self.lease.hear(rank, message, time.monotonic()))

    def answer(self, answers: Sequence[Answer]) -> None:
        """Send the answers of the lease to the ranks."""
        decided = next((message for _, message in answers if message["kind"] == "epoch"), None)
        if decided is not None and decided["number"] > self._generation:
            self._generation = decided["number"]
            self.relay.emit(MembershipChanged(self._generation, tuple(decided["members"])))
        for rank, message in answers:
            self.members.tell_member(rank, message)

    def _look_after_slots(self, now: float) -> None:
        running = self.ranks.running
        if self.slots is None or self.ending.began_at is not None or not running:
            return
        if self.lease is not None and self.lease.is_at_limit:
            self.slots.stop()
        for rank, host in self.slots.overdue(now, self.lease.timeout_s if self.lease is not None else now):
            self.relay.say(
                f"farandole: rank {rank} on {host} did not come to elastic.run within FARANDOLE_ELASTIC_TIMEOUT, so "
                "the launcher kills it."
            )
            self.members.evict(rank)
        placement = self.slots.due(now, running)
        if placement is not None:
            try:
                self.members.start_newcomer(placement)
            except OSError as error:
                self.slots.lost(placement.rank, now)
                self.relay.say(
                    f"farandole: cannot start a rank on {placement.host}: {error.strerror}; see ulimit -n and -u."
                )

    def _look_after_lease(self, now: float) -> None:
        if self.lease is None:
            return
        if self.ending.began_at is not None:
            self.answer(self.lease.give_up("the job ends"))
        sentence, overdue = self.lease.overdue(now)
        if sentence:
            self.relay.say(sentence)
        for rank in overdue:
            self.members.evict(rank)
        sentence, answers = self.lease.tick(now)
        if sentence:
            self.relay.say(sentence)
        self.answer(answers)

    def _act(self, now: float) -> None:
        self._look_after_lease(now)
        self._look_after_slots(now)
        if self.relay.stdout_error is not None:
            self._stdout_failed(self.relay.stdout_error, now)
        if self.ending.term_due(now):
            self.ranks.tell(signal.SIGTERM, spare_ending=True)
        if self.ranks.anything_left and self.ending.kill_due(now):
            self.ranks.kill()

    def _stdout_failed(self, error: OSError, now: float) -> None:
        if isinstance(error, BrokenPipeError):
            self.ending.stdout_closed(now)
        elif not self._stdout_warned:
            self._stdout_warned = True
            self.relay.say(f"farandole: cannot write to stdout: {error.strerror}; training goes on without it.")

    def decide(self) -> JobEnded:
        """How the job has ended, from the deaths of its ranks."""
        if self.ranks.anything_left:
            self.relay.say(
                "farandole: some processes of this job sit in the kernel and could not be killed yet; dmesg may say "
                "why (a device, or a network file system that does not answer)."
            )
        if self.ending.exit_code is not None:
            if self.ending.first_signal is not None and not self.ranks.anything_left:
                everybody = [*self.deaths, *self.survived]
                self.relay.say(failure_report.describe_interruption(self.ending.first_signal, everybody))
            return JobEnded(self.ending.exit_code)
        found = failure_report.first_failure(self.deaths, self.survived)
        if found is None:
            return JobEnded(0)
        has_logs = self.options.directory is not None and not self.relay.logs_failed
        rank, report = found.culprit.placement.rank, found.culprit.report
        has_raised = report is not None and report.raised
        return failure_report.job_ended(
            found,
            self.relay.tail(rank),
            str(self.options.directory) if has_logs else None,
            are_shown=self.relay.shows_tail(rank, _TRACEBACKS_IN_VIEW if has_raised else _LINES_IN_VIEW, has_raised),
            elsewhere=self.where_output_is(rank),
            more=[self._why_no_more],
        )


def _is_mistake(death: rank_exit.Death) -> bool:
    """Return whether the program raised an error that would happen again, on this rank or another."""
    return death.report is not None and (death.report.mistaken or death.report.culprit is not None)
