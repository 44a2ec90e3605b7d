"""The ranks that run as processes of this host: their signals, their deaths, what they leave behind."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from farandole._start.membership_channel import Message
from farandole._start.rank_records import RankRecords
from farandole.launch import guard, verdict
from farandole.launch.events import RankStarted
from farandole.launch.local import Rank
from farandole.launch.membership import MembershipServer
from farandole.launch.placement import Placement
from farandole.launch.supervise import ENDING, Supervisor
from farandole.observe.aftermath import Flights
from farandole.observe.sight import Sight
from farandole.observe.watch import HostWatch


@dataclass(kw_only=True)
class LocalSupervisor(Supervisor):
    """Supervises ranks that are our children."""

    records: RankRecords
    server: MembershipServer | None = None  # of an elastic job
    start_rank: Callable[[Placement, int], Rank] | None = None  # starts one that joins under this number
    alive: dict[int, Rank] = field(default_factory=dict)  # by process
    flights: Flights | None = None  # what the ranks have recorded
    _children_left: bool = True
    _leftovers_told: bool = False
    _told_groups: set[int] = field(default_factory=set)
    _asked: set[int] = field(default_factory=set)  # ranks, by their process, that were told to end

    def add(self, rank: Rank) -> None:
        """Supervise this rank too."""
        self.alive[rank.pid] = rank
        self._children_left = True
        self.relay.add(rank.placement.rank, rank.stdout, rank.stderr, rank.outcome)
        self.relay.emit(RankStarted(rank.placement.rank, rank.placement.host, rank.pid))

    def serve_membership(self) -> str:
        """Make the socket at which the ranks of this host speak of their elastic job; its name. Raises OSError."""
        self.server = MembershipServer(self.selector, self.hear_member)
        return self.server.name

    def tell_member(self, rank: int, message: Message) -> None:
        """See Supervisor."""
        if self.flights and message["kind"] == "epoch":
            self.flights.enter_epoch(message["number"], message["members"])
        if self.server is not None:
            self.server.send(rank, message)

    def start_newcomer(self, placement: Placement) -> None:
        """See Supervisor."""
        assert self.start_rank is not None
        self.relay.open_logs([placement.rank])
        self.add(self.start_rank(placement, placement.rank))

    def evict(self, rank: int) -> None:
        """See Supervisor."""
        for pid in self._pids_of([rank]):
            with contextlib.suppress(PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def ask_to_leave(self, ranks: Collection[int]) -> None:
        """Tell these ranks by SIGTERM that their places go; they leave an elastic job at its next commit."""
        for pid in self._pids_of(ranks):
            self._asked.add(pid)
            with contextlib.suppress(PermissionError):
                os.kill(pid, signal.SIGTERM)

    def _pids_of(self, ranks: Collection[int]) -> list[int]:
        return [pid for pid, each in self.alive.items() if each.placement.rank in ranks]

    def forget_ranks(self) -> None:
        """See Supervisor."""
        if self.flights:
            self.flights.remove()

    @property
    def running(self) -> int:
        """See Supervisor."""
        return len(self.alive)

    @property
    def anything_left(self) -> bool:
        """Returns whether we have a child."""
        return self._children_left

    def tell_ranks(self, signum: int, groups: bool = False, spare_ending: bool = False) -> None:
        """See Supervisor. A rank not yet reaped keeps its id, so none is missed."""
        for pid in [each for each in self.alive if not (spare_ending and self._ends_by_itself(each))]:
            if signum in ENDING:
                self._asked.add(pid)
            with contextlib.suppress(PermissionError):  # it became another user
                (os.killpg if groups else os.kill)(pid, signum)
        if groups and signum in ENDING:
            self._told_groups.update(self.alive)
        if signum in ENDING and self.suspended:
            self.go_on()

    def _ends_by_itself(self, pid: int) -> bool:
        """The rank has said that it ends: its own exit code is worth waiting for."""
        return self.records.parting(self.alive[pid].placement.rank) is not None

    def reap(self, now: float) -> None:
        """See Supervisor."""
        for pid, code in self._dead_children():
            rank = self.alive.pop(pid, None)
            if rank is None:
                self.other_child_ended(pid)
                continue
            rank.process.returncode = code
            asked = pid in self._asked
            self._judge(rank, code, now, asked)
            if asked and pid not in self._told_groups:
                self._told_groups.add(pid)  # a wrapper script went; its program should have its chance to end well too
                with contextlib.suppress(PermissionError):
                    os.killpg(pid, signal.SIGTERM)  # the dead leader, not yet reaped, keeps the group's id ours
        if self._children_left and not self.alive and not self._leftovers_told:
            self._leave_nothing(now)

    def other_child_ended(self, pid: int) -> None:
        """A child that is no rank: an orphan that a rank left to us."""

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

    def _judge(self, rank: Rank, code: int, now: float, asked: bool) -> None:
        number = rank.placement.rank
        if self.server is not None:
            self.server.drain()
        joined, said = self.records.joins(number) > 0, self.records.parting(number)
        self.records.end(number, rank.pid, code)
        recorded = self.flights.last_words(number) if self.flights and code < 0 and not asked else ""
        ran_s = now - rank.started_at
        death = verdict.Death(rank.placement, rank.pid, code, now, ran_s, asked, joined, said, recorded=recorded)
        self.rank_ended(death)

    def rank_ended(self, death: verdict.Death) -> None:
        """A rank of this host has ended."""
        self.note_death(death, self.running)

    def _leave_nothing(self, now: float) -> None:
        self._leftovers_told = True
        self.ending.ranks_gone(now)
        guard.signal_descendants(signal.SIGTERM, spare=lambda pid: os.getpgid(pid) in self._told_groups)

    # The watch over ranks that run

    @property
    def _watch_of_host(self) -> HostWatch | None:
        is_time = bool(self.alive) and not self.suspended and self.ending.began_at is None
        return self.flights.watch if self.flights and is_time else None

    def next_due(self, now: float) -> float | None:
        """See Supervisor."""
        return None if (watch := self._watch_of_host) is None else watch.next_due(now)

    def act(self, now: float) -> None:
        """See Supervisor."""
        if (watch := self._watch_of_host) is not None and (sight := watch.look(now)):
            self.take_sight(sight, now)
        super().act(now)

    def take_sight(self, sight: Sight, now: float) -> None:
        """The ranks of this host were looked at."""
        self.say_of_sight("", sight, now, len(self.alive))

    def kill(self) -> None:
        """See Supervisor."""
        self._asked.update(self.alive)
        guard.signal_descendants(signal.SIGKILL)
