"""How this rank's program ends: what is printed then, what the launcher is told, and ranks that wait in init().

A rank that fails leaves its job at once, but its process may take seconds to end: frameworks stop threads and free
memory. Meanwhile the others fail because of it and end sooner. So the launcher goes by what ranks say, not by the order
in which processes end. Without a launcher of ours nothing is said, and each rank prints what it fails of.
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

# Exceptions that would come again in the next epoch of an elastic job, so that they end it.
_MISTAKES = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, NotImplementedError),
    *(SyntaxError, TypeError, ValueError, MembershipError),
)


_FIRST_EPOCH = 1 << 32  # more worlds than a process joins otherwise


class _Teller:
    """Writes the record of the rank that this process is."""

    def __init__(self) -> None:
        self.records: RankRecords | None = None
        self.rank = 0
        self.pid = 0  # a forked child says nothing
        self.members: Sequence[int] = ()  # the records of the ranks of this world, in the order of their ranks
        self.world = 1  # the number of the one that this rank joins next, for the records
        self.lost: tuple[int, str] | None = None  # the record of the rank whose end has ended the last world, and why
        self.late: tuple[int, bool] | None = None  # of the one that others waited for in vain; it waits in turn
        self.plain_hook = self.first_hook = sys.excepthook
        self.is_inside = False  # the hook
        self.leave: Callable[[], None] = lambda: None  # the world

    def hook(self) -> None:
        """Be told of exceptions that nobody catches, before whoever was told until now."""
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
            ):  # in a container that does not see the launcher: it goes by what it sees
                self.records = RankRecords.open(path)

    @property
    def is_here(self) -> bool:
        """False in a forked child."""
        return os.getpid() == self.pid

    def say(self, error: BaseException | None, because_of: int | None = None, awaited: bool = False) -> None:
        """The program ends, by this exception, or at the interpreter's end."""
        if self.records is not None and self.is_here:
            self.records.part(self.rank, error is not None, because_of, isinstance(error, _MISTAKES), awaited)

    def note_lost(self) -> None:
        """Look whose end, or absence, has ended the world.

        A rank looks before it asks who tells: a rank that ends later may blame this one already.
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
        """The rank that tells the user each of them: the first that asks."""
        if self.records is not None:
            with suppress(OSError):  # the launcher has died
                return self.records.who_tells(self.rank, things)
        return [self.rank for _ in things]

    def on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if self.is_inside:  # a later hook, which init() has found in our place, hands on to us
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
        """Before `atexit` the interpreter joins its threads, perhaps for ever, while the other ranks wait for us."""
        with suppress(RuntimeError):  # it joins them already
            getattr(threading, "_register_atexit", atexit.register)(self.leave)  # the last one is called first

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if self.pid:
            self.note_lost()
        else:
            self._begin_late()
        is_interrupted = issubclass(kind, KeyboardInterrupt)
        if is_interrupted and self.records is not None and self.rank != 0 and not shows_details():
            self.say(error, because_of=self.lost_rank)  # one traceback tells where Ctrl-C met the ranks
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
        """The program fails before init(). Only a process that the launcher itself has started is the rank."""
        with suppress(ValueError):
            world = discover()
            if world.launcher == OURS and _leads_its_session():
                self.begin(world)

    def tell(self, uncaught: Uncaught, error: BaseException) -> None:
        """Of the ranks that fail of one mistake one shows its traceback; another says where, if that is elsewhere."""
        text = uncaught.text  # takes longer than to ask, so that the line of another comes after it mostly
        first, why, place = self.who_tells(uncaught.mistake, uncaught.reason, uncaught.reason + uncaught.where)
        late, waits_too = self.awaited(uncaught.error)
        if waits_too and self.records is not None:
            first, why = late, late  # it raises the same, and its line is the one to show
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
        """The rank for which others waited in vain, by an error about that, and whether it waits in turn."""
        return self.late if self.late and isinstance(error, DeadlineError) else (self.rank, False)

    def print(self, text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)


def _leads_its_session() -> bool:
    """Whether this process was started in a session of its own, as the launcher starts ranks; not one of its children.

    Programs through which a rank may be started, such as numactl and most shells, are replaced by it.
    """
    return os.getsid(0) == os.getpid()


_teller = _Teller()


def at_import() -> None:
    """Farandole is imported, perhaps by a rank."""
    if _leads_its_session():
        _teller.hook()


def before_init(world: World, leave: Callable[[], None]) -> None:
    """This process is about to join the world that its launcher told it of, and will leave it by this function."""
    _teller.leave = leave
    _teller.begin(world)
    if _teller.pid:
        _teller.hook()


def after_init() -> None:
    """This process has joined its world."""
    _teller.lost = _teller.late = None
    if _teller.records is not None:
        _teller.records.join(_teller.rank, _teller.world)
    _teller.world += 1


def enter_epoch(members: Sequence[int], number: int) -> None:
    """The next world has these members of the job, which keep the records of the ranks that they had at the start.

    `number`: of the epoch. A member may have missed worlds that others have been in, so that counting would not do.
    """
    _teller.members, _teller.world = members, _FIRST_EPOCH + number


def before_shutdown() -> None:
    """This process is about to leave its world; its program may go on."""
    _teller.note_lost()


def raised(error: BaseException) -> None:
    """The function of `farandole.run` raised: its caller shows the exception, so nothing is printed here."""
    if _teller.pid:
        _teller.note_lost()
        late, waits_too = _teller.awaited(error)
        if _teller.lost is None and late != _teller.rank:
            _teller.say(error, because_of=late, awaited=not waits_too)
        else:
            _teller.say(error, because_of=_teller.lost_rank)
        _teller.leave_before_threads_end()


def at_exit() -> None:
    """The interpreter ends."""
    _teller.note_lost()
    _teller.say(None, because_of=_teller.lost_rank)


def look_for_the_ended() -> None:
    """Raises PeerLostError where a rank's process has ended before it was in the world that this one waits for."""
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
    """Returns whether the error says no more than that. A MembershipError also says what to do."""
    if isinstance(error, MembershipError):
        return False
    return isinstance(error, PeerLostError) or lost[1] in sentence_of(error)
