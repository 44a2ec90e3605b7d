"""The ranks that run as processes of this host: their start, their signals, their deaths, what they leave behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from farandole._start.membership_channel import Message
from farandole._start.rank_records import RankRecords, make_memory
from farandole.launch import environment, guard, local, rank_exit
from farandole.launch.events import RankStarted
from farandole.launch.membership import MembershipServer
from farandole.launch.placement import Placement
from farandole.launch.supervise import ENDING, Supervisor
from farandole.observe.snapshot import Snapshot
from farandole.observe.watch import HostWatch, JobRecorders


@dataclass(eq=False)
class Rank:
    """A running rank. The pipes belong to whoever relays them."""

    placement: Placement
    process: subprocess.Popen[bytes]
    started_at: float
    stdout: int
    stderr: int
    outcome: int = -1  # of a rank that calls a function

    @property
    def pid(self) -> int:
        """Its process, session and process group."""
        return self.process.pid


class Listener(Protocol):
    """A listener for this host's ranks: the local supervisor, or an agent that informs the launcher on another host."""

    def note_death(self, death: rank_exit.Death) -> None:
        """A rank has ended."""

    def hear_member(self, rank: int, message: Message) -> None:
        """A rank has sent a message about the membership of its elastic job."""

    def note_snapshot(self, snapshot: Snapshot, now: float) -> None:
        """A snapshot of the ranks of this host is there."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """Parameters for starting the ranks of this host, without their slots."""

    command: Sequence[str]
    base: dict[str, str]  # the environment
    secret: bytes
    capacity: int  # how many numbers of ranks there may be
    store: str
    master: tuple[str, int]  # the address and port at which rank 0 may listen for torch.distributed
    start_timeout_s: float | None
    bind_to: str  # "core" gives each rank its own cores
    address: str = ""  # at which other hosts reach this one
    call: int = -1  # descriptor of the function that the ranks call
    is_elastic: bool = False
    gets_stdin: bool = True  # rank 0 has ours


@dataclass(eq=False)
class Children:
    """The ranks of this host, which are children of this process. Their key and records live as long as it does."""

    supervisor: Supervisor
    listener: Listener
    records: RankRecords = field(init=False)
    alive: dict[int, Rank] = field(default_factory=dict)  # by process
    on_other_child: Callable[[int, int], None] = lambda _pid, _code: None  # one that is no rank has ended
    others_may_come: bool = False  # so there is nothing to clean up without ranks
    _start: Start = field(init=False)
    _common: dict[str, Any] = field(default_factory=dict)  # to the environments of all
    _server: MembershipServer | None = None  # of an elastic job
    _flights: JobRecorders | None = None  # what the ranks have recorded
    _children_left: bool = True
    _leftovers_reported: bool = False
    _asked_groups: set[int] = field(default_factory=set)
    _asked: set[int] = field(default_factory=set)  # ranks, by their process, that were told to end

    def prepare(self, start: Start) -> None:
        """Before the first rank. Raises OSError."""
        memory = make_memory(start.capacity)
        self._start, self.records = start, RankRecords(memory, start.capacity)
        self._flights = JobRecorders(start.base, start.secret)
        if start.is_elastic:
            self._server = MembershipServer(self.supervisor.selector, self.listener.hear_member)
        self._common = {
            "store": start.store,
            "master": start.master,
            "address": start.address,
            "start_timeout_s": start.start_timeout_s,
            "key_file": local.path_for_ranks(local.make_key(start.secret)),
            "status_file": local.path_for_ranks(memory),
            "membership": self._server.name if self._server else "",
            "cores": environment.available_cores(),
        }

    def start(self, placement: Placement, joins: int = -1) -> None:
        """Start a rank; one that joins an elastic job, under this number. Raises SpecError, OSError."""
        variables = environment.for_rank(self._start.base, placement, joins=joins, **self._common)
        rank = _fork(self._start, placement, variables, has_threads=joins >= 0)
        self.alive[rank.pid] = rank
        self._children_left = True
        self.supervisor.relay.add(placement.rank, rank.stdout, rank.stderr, rank.outcome)
        self.supervisor.relay.emit(RankStarted(placement.rank, placement.host, rank.pid))

    def tell_member(self, rank: int, message: Message) -> None:
        """See Members."""
        if self._flights and message["kind"] == "epoch":
            self._flights.enter_epoch(message["number"], message["members"])
        if self._server is not None:
            self._server.send(rank, message)

    def start_newcomer(self, placement: Placement) -> None:
        """See Members."""
        self.supervisor.relay.open_logs([placement.rank])
        self.start(placement, joins=placement.rank)

    def evict(self, rank: int) -> None:
        """See Members."""
        for pid in self._pids_of([rank]):
            with contextlib.suppress(PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def ask_to_leave(self, ranks: Collection[int]) -> None:
        """SIGTERM ranks whose slots are gone; they leave an elastic job at its next commit."""
        for pid in self._pids_of(ranks):
            self._asked.add(pid)
            with contextlib.suppress(PermissionError):
                os.kill(pid, signal.SIGTERM)

    def _pids_of(self, ranks: Collection[int]) -> list[int]:
        return [pid for pid, each in self.alive.items() if each.placement.rank in ranks]

    def forget(self) -> None:
        """After the last report: remove the files that the ranks left for readers."""
        if self._flights:
            self._flights.remove()

    @property
    def running(self) -> int:
        """See Ranks."""
        return len(self.alive)

    @property
    def anything_left(self) -> bool:
        """Return whether we have a child."""
        return self._children_left

    def tell(self, signum: int, groups: bool = False, spare_ending: bool = False) -> None:
        """See Ranks. A rank not yet reaped keeps its id, so none is missed."""
        for pid in [each for each in self.alive if not (spare_ending and self._ends_by_itself(each))]:
            if signum in ENDING:
                self._asked.add(pid)
            with contextlib.suppress(PermissionError):  # it became another user
                (os.killpg if groups else os.kill)(pid, signum)
        if groups and signum in ENDING:
            self._asked_groups.update(self.alive)
        if signum in ENDING and self.supervisor.suspended:
            self.supervisor.go_on()

    def _ends_by_itself(self, pid: int) -> bool:
        """Return whether the rank has announced its end, so that waiting for its exit code makes sense."""
        return self.records.parting(self.alive[pid].placement.rank) is not None

    def reap(self, now: float) -> None:
        """See Ranks."""
        for pid, code in self._dead_children():
            rank = self.alive.pop(pid, None)
            if rank is None:  # perhaps an orphan that a rank has left to us
                self.on_other_child(pid, code)
                continue
            rank.process.returncode = code
            asked = pid in self._asked
            self._record_death(rank, code, now, asked)
            if asked and pid not in self._asked_groups:
                self._asked_groups.add(
                    pid
                )  # a wrapper script has ended; its program gets the time to end by itself, too
                with contextlib.suppress(PermissionError):
                    os.killpg(pid, signal.SIGTERM)  # the dead leader, not yet reaped, keeps the group's id ours
        if self._children_left and not (self.alive or self._leftovers_reported or self.others_may_come):
            self._leave_nothing(now)

    def _dead_children(self) -> Iterator[tuple[int, int]]:
        """Yield (pid, exit code or minus signal) of each dead child; it is reaped when the next one is requested."""
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

    def _record_death(self, rank: Rank, code: int, now: float, asked: bool) -> None:
        number = rank.placement.rank
        if self._server is not None:
            self._server.drain()
        joined, report = self.records.joins(number) > 0, self.records.parting(number)
        self.records.end(number, rank.pid, code)
        recorded = self._flights.last_words(number) if self._flights and code < 0 and not asked else ""
        ran_s = now - rank.started_at
        death = rank_exit.Death(rank.placement, rank.pid, code, now, ran_s, asked, joined, report, recorded=recorded)
        self.listener.note_death(death)

    def _leave_nothing(self, now: float) -> None:
        self._leftovers_reported = True
        self.supervisor.ending.ranks_gone(now)
        guard.signal_descendants(signal.SIGTERM, spare=lambda pid: os.getpgid(pid) in self._asked_groups)

    # The watch over ranks that run

    @property
    def _watch_of_host(self) -> HostWatch | None:
        is_time = bool(self.alive) and not self.supervisor.suspended and self.supervisor.ending.began_at is None
        return self._flights.watch if self._flights and is_time else None

    def next_due(self, now: float) -> float | None:
        """See Ranks."""
        return None if (watch := self._watch_of_host) is None else watch.next_due(now)

    def act(self, now: float) -> None:
        """See Ranks."""
        if (watch := self._watch_of_host) is not None and (snapshot := watch.look(now)):
            self.listener.note_snapshot(snapshot, now)

    def kill(self) -> None:
        """See Ranks."""
        self._asked.update(self.alive)
        guard.signal_descendants(signal.SIGKILL)


def _cores_of(placement: Placement, cores: Sequence[int]) -> list[int]:
    """The cores of a rank that is bound: its share of these. With more ranks than cores, ranks share them."""
    share = max(1, len(cores) // placement.local_size)
    first = placement.local_rank * share % len(cores)
    return list(cores[first : first + share])


def _fork(start: Start, placement: Placement, environment: Mapping[str, str], has_threads: bool) -> Rank:
    """Start one rank; rank 0 gets the stdin of this process, unless no rank does.

    A rank that calls a function has two more arguments: where it reads that, and the descriptor for its outcome.
    Raises SpecError if it cannot be executed, OSError if there is no room for one more process.
    """
    calls = start.call >= 0
    stdout, stdout_of_rank = os.pipe()
    stderr, stderr_of_rank = os.pipe()
    outcome, outcome_of_rank = os.pipe() if calls else (-1, -1)
    of_rank = [outcome_of_rank] if calls else []
    args = [*start.command, *([local.path_for_ranks(start.call), str(outcome_of_rank)] if calls else [])]
    try:
        process = guard.start_child(
            args,
            has_threads,
            _cores_of(placement, sorted(os.sched_getaffinity(0))) if start.bind_to == "core" else (),
            env=environment,
            stdin=None if placement.rank == 0 and start.gets_stdin else subprocess.DEVNULL,
            stdout=stdout_of_rank,
            stderr=stderr_of_rank,
            pass_fds=of_rank,
        )
    except OSError as error:
        if error.filename is None:  # fork, not exec
            raise
        why = f"{start.command[0]} cannot be executed: {error.strerror}."
        raise local.unusable(why) from error
    finally:
        for descriptor in (stdout_of_rank, stderr_of_rank, *of_rank):
            os.close(descriptor)
    return Rank(placement, process, time.monotonic(), stdout, stderr, outcome)
