"""Tells the launcher how this rank's program ends, and a rank in init() which other rank's process has ended.

A rank that fails leaves its job at once, but its process may take seconds to end: frameworks stop threads and free
memory. Meanwhile the others fail because of it and end sooner. So the launcher goes by what ranks say, not by the order
in which processes end. Without a launcher of ours nothing is said.
"""

from __future__ import annotations

import os
import sys
import traceback
from types import TracebackType

from farandole._environment import OURS, World, shows_details, status_file
from farandole._errors import PeerLostError
from farandole._native import core
from farandole._rank_records import RankRecords
from farandole._sites import place


class _Teller:
    """Writes the record of the rank that this process is."""

    def __init__(self) -> None:
        self.records: RankRecords | None = None
        self.rank = 0
        self.pid = 0  # a forked child says nothing
        self.lost: tuple[int, str] | None = None  # whose end has ended the last world
        self.is_explained = False  # another rank has said why
        self.plain_hook = sys.excepthook

    def begin(self, world: World) -> None:
        path = status_file()
        if self.records is not None or not path or world.starter != OURS or world.size < 2:
            return
        try:
            self.records = RankRecords.open(path, world.size)
        except (OSError, ValueError):  # in a container that does not see the launcher: it goes by what it sees
            return
        self.rank, self.pid = world.rank, os.getpid()
        self.plain_hook, sys.excepthook = sys.excepthook, self.on_exception

    def say(self, raised: bool) -> None:
        if self.records is None or os.getpid() != self.pid:
            return
        self.note_lost()
        self.is_explained = self.lost is not None and self.is_blamed(self.lost[0], self.records)
        self.records.part(self.rank, raised, self.lost[0] if self.lost else None)

    def is_blamed(self, culprit: int, records: RankRecords) -> bool:
        partings = [records.parting(rank) for rank in range(records.size) if rank != self.rank]
        return any(each is not None and each.raised and each.blamed == culprit for each in partings)

    def note_lost(self) -> None:
        self.lost = core.lost_rank() or self.lost

    def on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self.say(raised=True)
        if issubclass(kind, KeyboardInterrupt) and self.records is not None and self.rank != 0 and not shows_details():
            return  # Ctrl-C reaches all ranks, and one traceback tells where they were
        if self.lost and self.plain_hook is sys.__excepthook__ and not shows_details() and _speaks_of(self.lost, error):
            if not self.is_explained:  # by another rank, in the same words
                print(f"farandole: rank {self.rank} stops{_where(trace)}: {self.lost[1]}", file=sys.stderr, flush=True)
        else:
            self.plain_hook(kind, error, trace)


_teller = _Teller()


def before_init(world: World) -> None:
    """This process is about to join the world that its starter told it of."""
    _teller.begin(world)


def after_init() -> None:
    """This process has joined its world."""
    _teller.lost = None
    if _teller.records is not None:
        _teller.records.join(_teller.rank)


def before_shutdown() -> None:
    """This process is about to leave its world; its program may go on."""
    _teller.note_lost()


def at_exit() -> None:
    """The interpreter ends."""
    _teller.say(raised=False)


def look_for_the_ended() -> None:
    """Raises PeerLostError where a rank's process has ended before it was in the world that this one waits for."""
    records = _teller.records
    if records is None:
        return
    for rank in range(records.size):
        ended = records.ended(rank)
        if ended is not None and records.joins(rank) <= records.joins(_teller.rank):
            how = f"exit code {ended.code}" if ended.code >= 0 else f"signal {-ended.code}"
            why = f"rank {rank} (pid {ended.pid}) ended with {how} and had not called init()"
            _teller.lost = rank, f"{why}; look at rank {rank}'s output first"
            raise PeerLostError(f"rank {_teller.rank} waited in init(), but {_teller.lost[1]}")


def _speaks_of(lost: tuple[int, str], error: BaseException) -> bool:
    return isinstance(error, PeerLostError) or lost[1] in str(error)


def _where(trace: TracebackType | None) -> str:
    """The innermost line of the user's own."""
    places = [place(frame) for frame, _ in traceback.walk_tb(trace)]
    return next((f" at {each}" for each in reversed(places) if each), "")
