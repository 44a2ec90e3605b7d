"""Handles the end of this rank's program: what it prints, and what it tells the launcher and ranks that wait in init().

A rank that fails leaves its job at once, but its process may take seconds to end, while frameworks stop threads and
free memory. Meanwhile the others fail because of it and end sooner. So the launcher relies on records of the ranks, not
on the order in which processes end. Under other launchers, nothing is recorded, and each rank prints its own error.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType

from farandole._api.errors import DeadlineError, MembershipError, PeerLostError
from farandole._runtime.native import core
from farandole._runtime.uncaught import Uncaught, sentence_of
from farandole._start.environment import OURS, World, discover, shows_details, status_file
from farandole._start.rank_records import RankRecords

# Exceptions that would come again in the next epoch of an elastic job, so they end it.
_MISTAKES = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, NotImplementedError),
    *(SyntaxError, TypeError, ValueError, MembershipError),
)


_FIRST_EPOCH = 1 << 32  # more worlds than a process joins without elastic training


class _Teller:
    """Writes the record of this process's rank."""

    def __init__(self) -> None:
        self.records: RankRecords | None = None
        self.rank = 0
        self.pid = 0  # a forked child writes nothing
        self.members: Sequence[int] = ()  # the records of the ranks of this world, in the order of their ranks
        self.world = 1  # number of the world that this rank joins next, for the records
        self.lost: tuple[int, str] | None = None  # the rank (by its record) whose end has ended the last world, and why
        self.late: tuple[int, bool] | None = None  # for which others waited in vain, and whether it waits in turn
        self.plain_hook = self.first_hook = sys.excepthook
        self.is_inside = False  # whether the hook is running
        self.leave: Callable[[], None] = lambda: None  # leaves the world

    def hook(self) -> None:
        """Install a hook for uncaught exceptions, which runs before the existing one."""
        if sys.excepthook != self.on_exception:
            self.plain_hook, sys.excepthook = sys.excepthook, self.on_exception

    def begin(self, world: World) -> None:
        if self.pid or (world.size < 2 and world.joins < 0):
            return
        self.rank = world.rank if world.joins < 0 else world.joins
        self.pid, self.members = os.getpid(), range(world.size)
        path = status_file()
        if path and world.launcher == OURS:
            with suppress(
                OSError, ValueError
            ):  # in a container that does not see the launcher, which then relies on what it sees itself
                self.records = RankRecords.open(path)

    @property
    def is_here(self) -> bool:
        """Return False in a forked child."""
        return os.getpid() == self.pid

    def say(self, error: BaseException | None, because_of: int | None = None, awaited: bool = False) -> None:
        """Record that the program ends by this exception, or with the interpreter."""
        if self.records is not None and self.is_here:
            self.records.part(self.rank, error is not None, because_of, isinstance(error, _MISTAKES), awaited)

    def note_lost(self) -> None:
        """Note which rank's end or absence has ended the world.

        A rank does this before it asks who tells, because a rank that ends later may already blame this one.
        """
        if found := core.lost_rank():
            rank, why = found
            self.lost = self._record_of(rank), why
        if late := core.late_rank():
            self.late = self._record_of(late[0]), late[1]

    def _record_of(self, rank: int) -> int:
        return self.members[rank] if rank < len(self.members) else rank

    @property
    def lost_rank(self) -> int | None:
        return self.lost[0] if self.lost else None

    def who_tells(self, *things: str) -> list[int]:
        """Return, for each thing, the rank that tells the user about it: the first that asked."""
        if self.records is not None:
            with suppress(OSError):  # the launcher has died
                return self.records.who_tells(self.rank, things)
        return [self.rank for _ in things]

    def on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if self.is_inside:  # a later hook, which init() found in place of ours, calls this one
            self.first_hook(kind, error, trace)
            return
        self.is_inside = True
        try:
            self._on_exception(kind, error, trace)
        finally:
            self.is_inside = False
        if self.is_here:
            self.leave_before_threads_end()

    def leave_before_threads_end(self) -> None:
        """Leave the world before the interpreter joins its threads, which may take for ever while other ranks wait."""
        with suppress(RuntimeError):  # the interpreter is already joining them
            getattr(threading, "_register_atexit", atexit.register)(self.leave)  # the last one is called first

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if self.pid:
            self.note_lost()
        else:
            self._begin_late()
        is_interrupted = issubclass(kind, KeyboardInterrupt)
        if is_interrupted and self.records is not None and self.rank != 0 and not shows_details():
            self.say(error, because_of=self.lost_rank)  # one traceback shows where Ctrl-C interrupted the ranks
            return
        if is_interrupted or self.plain_hook is not sys.__excepthook__ or shows_details() or not self.is_here:
            self.say(error, because_of=self.lost_rank)
            self.plain_hook(kind, error, trace)
            return
        uncaught = Uncaught(error, trace)
        if self.lost is None or not _speaks_of(self.lost, error):
            self.tell(uncaught, error)
            return
        self.say(error, because_of=self.lost_rank)
        if self.who_tells(self.lost[1]) == [self.rank]:
            self.print(f"farandole: rank {self.rank} stops{uncaught.where}: {self.lost[1]}\n")

    def _begin_late(self) -> None:
        """Handle a failure before init(). Only a process that the launcher itself has started is the rank."""
        with suppress(ValueError):
            world = discover()
            if world.launcher == OURS and _leads_its_session():
                self.begin(world)

    def tell(self, uncaught: Uncaught, error: BaseException) -> None:
        """Print the traceback on one of the ranks with the same mistake, and on the others only a different line."""
        text = uncaught.text  # slower than asking, so another rank's line usually comes after it
        first, why, place = self.who_tells(uncaught.mistake, uncaught.reason, uncaught.reason + uncaught.where)
        late, waits_too = self.awaited(uncaught.error)
        if waits_too and self.records is not None:
            first, why = late, late  # that rank raises the same error, and its line is the one to show
        if self.lost is None and first == self.rank and late != self.rank:
            self.say(error, because_of=late, awaited=not waits_too)
        else:
            self.say(error, because_of=self.lost_rank if first == self.rank or self.lost else first)
        if first == self.rank:
            self.print(text)
        elif place == self.rank:
            reason = f": {uncaught.reason}" if why == self.rank else f" for the same reason as rank {first}"
            self.print(f"farandole: rank {self.rank} stops{uncaught.where}{reason}\n")

    def awaited(self, error: BaseException) -> tuple[int, bool]:
        """Return the rank for which this error says others waited in vain, and whether it waits in turn."""
        return self.late if self.late and isinstance(error, DeadlineError) else (self.rank, False)

    def print(self, text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)


def _leads_its_session() -> bool:
    """Return whether this process leads its session, as a rank that the launcher started does; its children do not.

    Programs that start a rank, such as numactl and most shells, are replaced by it.
    """
    return os.getsid(0) == os.getpid()


_teller = _Teller()


def at_import() -> None:
    """Install the hook when Farandole is imported, perhaps by a rank."""
    if _leads_its_session():
        _teller.hook()


def before_init(world: World, leave: Callable[[], None]) -> None:
    """Note that this process is about to join the launcher's world, which `leave` will leave."""
    _teller.leave = leave
    _teller.begin(world)
    if _teller.pid:
        _teller.hook()


def after_init() -> None:
    """Record that this process has joined its world."""
    _teller.lost = _teller.late = None
    if _teller.records is not None:
        _teller.records.join(_teller.rank, _teller.world)
    _teller.world += 1


def enter_epoch(members: Sequence[int], number: int) -> None:
    """Note the members of the next world, whose records stay those of the ranks that they had at the start.

    `number` is that of the epoch: a member may have missed worlds, so worlds cannot be counted.
    """
    _teller.members, _teller.world = members, _FIRST_EPOCH + number


def before_shutdown() -> None:
    """Note that this process is about to leave its world, while its program may go on."""
    _teller.note_lost()


def raised(error: BaseException) -> None:
    """Record an exception of the function of `farandole.run`. Its caller shows it, so nothing is printed here."""
    if _teller.pid:
        _teller.note_lost()
        late, waits_too = _teller.awaited(error)
        if _teller.lost is None and late != _teller.rank:
            _teller.say(error, because_of=late, awaited=not waits_too)
        else:
            _teller.say(error, because_of=_teller.lost_rank)
        _teller.leave_before_threads_end()


def at_exit() -> None:
    """Record that the interpreter ends."""
    _teller.note_lost()
    _teller.say(None, because_of=_teller.lost_rank)


def look_for_the_ended() -> None:
    """Raise PeerLostError if a rank's process has ended before it joined the world that this one waits for."""
    records = _teller.records
    if records is None:
        return
    for rank, number in enumerate(_teller.members):
        ended = records.ended(number)
        if ended is not None and records.joins(number) < _teller.world:
            how = f"exit code {ended.code}" if ended.code >= 0 else f"signal {-ended.code}"
            why = f"rank {rank} (pid {ended.pid}) ended with {how} and had not called init()"
            _teller.lost = number, f"{why}; look at rank {rank}'s output first"
            raise PeerLostError(f"rank {_teller.rank} waited in init(), but {_teller.lost[1]}")


def _speaks_of(lost: tuple[int, str], error: BaseException) -> bool:
    """Return whether the error only reports this loss. A MembershipError also says what to do."""
    if isinstance(error, MembershipError):
        return False
    return isinstance(error, PeerLostError) or lost[1] in sentence_of(error)
