"""The loop around running ranks: their output, their deaths, the user's signals, the end.

One thread; it never blocks but in select. Two things wake it: a pipe (signals as their number, writers as 0) and the
lifeline to the outer process (guard.py). ending.py and verdict.py decide; this file acts.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from farandole._start.rank_records import RankRecords
from farandole.launch import guard, verdict
from farandole.launch.ending import Ending
from farandole.launch.local import Rank
from farandole.launch.relay import OutputOptions, Relay, Stream

_KILL_EVERY_SECONDS = 0.02
_LINES_IN_SIGHT = 8  # of others after a rank's last line, so that the user still sees it
_LEAVE_AFTER_SECONDS = 1.0  # a job that was interrupted waits so long for a stuck stdout
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
_OF_THE_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)  # a terminal sends these to whole process groups


@dataclass
class Supervisor:
    """Runs one job on this machine to its end. Make it before the ranks, call `run` once."""

    options: OutputOptions
    grace_s: float
    lifeline: int
    records: RankRecords
    _alive: dict[int, Rank] = field(default_factory=dict)
    _deaths: list[verdict.Death] = field(default_factory=list)
    _children_left: bool = True
    _suspended: bool = False
    _hurried: bool = False  # the user, or the death of the launcher, wants this to end
    _stdout_warned: bool = False
    _leftovers_told: bool = False
    _told_groups: set[int] = field(default_factory=set)
    _asked: set[int] = field(default_factory=set)  # ranks, by their process, that were told to end

    def __post_init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = os.pipe()
        for descriptor in (self._wake_reader, self._wake_writer):
            os.set_blocking(descriptor, False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
        self._selector.register(self.lifeline, selectors.EVENT_READ, None)
        self._ending = Ending(self.grace_s)
        self.relay = Relay(self.options, self._selector, self._wake)
        self._catch_signals()

    def add(self, rank: Rank) -> None:
        """Supervise this rank too."""
        self._alive[rank.pid] = rank
        self.relay.add(rank.placement.rank, rank.stdout, rank.stderr)

    def run(self) -> int:
        """Until nothing of the job is left and all its output is written. Returns the exit code of the job."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, guard.HANDLED)
        self.relay.start()
        while self._children_left and not self._ending.given_up(time.monotonic()):
            self._turn()
        gone_at = time.monotonic()
        while self.relay.streams and not self._leaves(gone_at):
            self.relay.drain(time.monotonic())
            self._turn()
        code = self._conclude()
        said_at = time.monotonic()
        while not self.relay.flushed and not self._leaves(said_at):
            self._turn()
        return code

    # The loop

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._wait_at_most()):
            if isinstance(key.data, Stream):
                self.relay.read(key.data, time.monotonic())
            elif key.fd == self._wake_reader:
                self._hear()
            else:
                self._hurried = True
                self._selector.unregister(self.lifeline)
                self._ending.launcher_gone(time.monotonic())
        now = time.monotonic()
        self._reap(now)
        self.relay.tick(now)
        self._act(now)

    def _wait_at_most(self) -> float | None:
        now = time.monotonic()
        times = [self.relay.wait_at_most()]
        if not self._children_left or self._ending.kill_due(now):
            times.append(_KILL_EVERY_SECONDS)
        else:
            times.append(self._ending.wait_at_most(now))
        return min((seconds for seconds in times if seconds is not None), default=None)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: it is awake already
            os.write(self._wake_writer, b"\0")

    def _leaves(self, since: float) -> bool:
        """Do not wait for ever for who should read the output."""
        return self._hurried and time.monotonic() >= since + _LEAVE_AFTER_SECONDS

    # Signals

    def _catch_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        for signum in (*guard.HANDLED, signal.SIGCHLD):
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:  # nohup
                signal.signal(signum, lambda *_: None)

    def _hear(self) -> None:
        for signum in os.read(self._wake_reader, 4096):
            if signum in _ENDING:
                self._hurried = True
                if self._ending.interrupted(signum, time.monotonic()):
                    self._tell_ranks(signum, groups=signum in _OF_THE_KEYBOARD)
            elif signum in _PASSED_ON:
                self._tell_ranks(signum)
            elif signum == signal.SIGTSTP:
                self._suspended = True
                self._tell_ranks(signal.SIGSTOP, groups=True)
            elif signum == signal.SIGCONT:
                self._continue()

    def _tell_ranks(self, signum: int, groups: bool = False, spare: Callable[[int], bool] = lambda _pid: False) -> None:
        """Signal the ranks but those to `spare`; `groups`: and what they started.

        A rank not yet reaped keeps its id, so none is missed.
        """
        for pid in [each for each in self._alive if not spare(each)]:
            if signum in _ENDING:
                self._asked.add(pid)
            with contextlib.suppress(PermissionError):  # it became another user
                (os.killpg if groups else os.kill)(pid, signum)
        if groups and signum in _ENDING:
            self._told_groups.update(self._alive)
        if signum in _ENDING and self._suspended:
            self._continue()

    def _continue(self) -> None:
        self._suspended = False
        self._tell_ranks(signal.SIGCONT, groups=True)

    # Deaths

    def _reap(self, now: float) -> None:
        for pid, code in self._dead_children():
            rank = self._alive.pop(pid, None)
            if rank is None:
                continue  # an orphan that a rank left to us
            rank.process.returncode = code
            asked = pid in self._asked
            self._note_death(rank, code, now, asked)
            if asked and pid not in self._told_groups:
                self._told_groups.add(pid)  # a wrapper script went; its program should have its chance to end well too
                with contextlib.suppress(PermissionError):
                    os.killpg(pid, signal.SIGTERM)  # the dead leader, not yet reaped, keeps the group's id ours
        if self._children_left and not self._alive and not self._leftovers_told:
            self._leave_nothing(now)

    def _dead_children(self) -> Iterator[tuple[int, int]]:
        """(pid, exit code or minus signal) of each; it is reaped when the next is asked for."""
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                self._children_left = False
                return
            if info is None:
                return
            yield info.si_pid, info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
            os.waitpid(info.si_pid, 0)

    def _note_death(self, rank: Rank, code: int, now: float, asked: bool) -> None:
        number = rank.placement.rank
        joined, said = self.records.joins(number) > 0, self.records.parting(number)
        death = verdict.Death(rank.placement, rank.pid, code, now, now - rank.started_at, asked, joined, said)
        self._deaths.append(death)
        self.records.end(number, rank.pid, code)
        if code != 0 and not asked:
            self._ending.rank_failed(now)
        if self.options.verbose:
            self.relay.say(verdict.note(death, len(self._alive)))

    def _leave_nothing(self, now: float) -> None:
        self._leftovers_told = True
        self._ending.ranks_gone(now)
        guard.signal_descendants(signal.SIGTERM, spare=lambda pid: os.getpgid(pid) in self._told_groups)

    # The end

    def _act(self, now: float) -> None:
        if self.relay.stdout_error is not None:
            self._stdout_failed(self.relay.stdout_error, now)
        if self._ending.term_due(now):
            self._tell_ranks(signal.SIGTERM, spare=self._ends_by_itself)
        if self._children_left and self._ending.kill_due(now):
            self._asked.update(self._alive)
            guard.signal_descendants(signal.SIGKILL)

    def _ends_by_itself(self, pid: int) -> bool:
        """The rank has said that it ends: its own exit code is worth waiting for."""
        return self.records.parting(self._alive[pid].placement.rank) is not None

    def _stdout_failed(self, error: OSError, now: float) -> None:
        if isinstance(error, BrokenPipeError):
            self._ending.stdout_closed(now)
        elif not self._stdout_warned:
            self._stdout_warned = True
            self.relay.say(f"farandole: cannot write to stdout: {error.strerror}; training goes on without it.")

    def _conclude(self) -> int:
        if self._children_left:
            self.relay.say("farandole: some processes of this job sit in the kernel and could not be killed yet.")
        if self._ending.exit_code is not None:
            if self._ending.first_signal is not None and not self._children_left:
                self.relay.say(verdict.describe_interruption(self._ending.first_signal, self._deaths))
            return self._ending.exit_code
        found = verdict.judge(self._deaths)
        if found is None:
            return 0
        directory = None if self.options.directory is None else str(self.options.directory)
        rank, said = found.culprit.placement.rank, found.culprit.said
        is_above = self.relay.shows_tail(rank, _LINES_IN_SIGHT, is_told=said is not None and said.raised)
        self.relay.say(verdict.describe(found, self.relay.tail(rank), directory, is_above))
        return found.exit_code
