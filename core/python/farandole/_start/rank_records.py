"""One small record per rank in shared memory, in which a launcher and its ranks record the ends of ranks.

    rank     -> launcher   it is in its world; its program ends, since when, because of which rank
    launcher -> ranks      the rank's process has ended, with which code
    ranks -> ranks         what one of them tells the user, for the others not to tell it again

The launcher makes the memory and hands out a path below /proc, which the kernel opens for the same user only. Each
field is an aligned word that is written at once, and the last one of a message says that the others are there: a
message of a rank that is killed while it writes does not count. Digests of reported mistakes stand behind the records:

    record of rank 0 | record of rank 1 | ... | digest, rank | digest, rank | ...
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_WORD_BYTES = 8
_WORDS = 8  # of each rank
_JOINS, _PARTING, _SINCE_NS, _CULPRIT, _HAS_ENDED, _CODE, _PID, _AWAITED = range(8)
_RAISED, _EXITED, _MISTAKEN = 1, 2, 3
_THINGS = 64  # things at most; more are told by each rank
_LOCK_SECONDS = 0.2


@dataclass(frozen=True)
class Parting:
    """A rank's message that its program ends, written while its process still ran."""

    raised: bool  # an exception that nobody caught; else the interpreter ended
    at_s: float  # of the machine's monotonic clock
    culprit: int | None  # the rank whose end had ended the world before
    mistaken: bool = False  # the exception is a mistake of the program, which would come again
    awaited: bool = False  # the culprit has not ended: it was waited for in vain


@dataclass(frozen=True)
class Ended:
    """The launcher's message that a rank's process has ended."""

    pid: int
    code: int  # or minus the signal


class RankRecords:
    """The records of all ranks of one job."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._words = memoryview(mmap.mmap(descriptor, _bytes(size))).cast("q")
        self._path = f"/proc/self/fd/{descriptor}"
        self.size = size

    @classmethod
    def open(cls, path: str) -> RankRecords:
        """Raises OSError or ValueError where there is no such memory."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            records = cls(descriptor, _size(os.fstat(descriptor).st_size))
        finally:
            os.close(descriptor)
        records._path = path
        return records

    # Written by the rank

    def join(self, rank: int, world: int) -> None:
        """`rank` is in the world of this number, and no longer about to end."""
        self._set(rank, _PARTING, 0)
        self._set(rank, _JOINS, world)

    def part(self, rank: int, raised: bool, culprit: int | None, mistaken: bool = False, awaited: bool = False) -> None:
        """The program of `rank` ends. Its first word counts."""
        if self._get(rank, _PARTING):
            return
        self._set(rank, _SINCE_NS, time.monotonic_ns())
        self._set(rank, _CULPRIT, -1 if culprit is None else culprit)
        self._set(rank, _AWAITED, int(awaited))
        self._set(rank, _PARTING, _MISTAKEN if mistaken else _RAISED if raised else _EXITED)

    def who_tells(self, rank: int, things: Sequence[str]) -> list[int]:
        """For each of the things the rank that was the first to ask this about it; `rank` itself where it is."""
        with self._locked():
            return [self._who_tells(rank, _digest(each)) for each in things]

    def _who_tells(self, rank: int, digest: int) -> int:
        for at in range(self.size * _WORDS, len(self._words), 2):
            if self._words[at] == digest:
                return self._words[at + 1]
            if self._words[at] == 0:
                self._words[at + 1] = rank
                self._words[at] = digest
                break
        return rank

    # Written by the launcher

    def end(self, rank: int, pid: int, code: int, joins: int = 0) -> None:
        """The process of `rank` has ended. `joins`: the last world it was in, if it is on another host."""
        if joins:
            self._set(rank, _JOINS, joins)
        self._set(rank, _PID, pid)
        self._set(rank, _CODE, code)
        self._set(rank, _HAS_ENDED, 1)

    # Read by both

    def joins(self, rank: int) -> int:
        """The number of the last world that it has joined; 0: of none. Later worlds have larger numbers."""
        return self._get(rank, _JOINS)

    def parting(self, rank: int) -> Parting | None:
        """How the rank announced its end; None if it has not."""
        manner = self._get(rank, _PARTING)
        if not manner:
            return None
        culprit = self._get(rank, _CULPRIT)
        known = culprit if 0 <= culprit < self.size else None
        since_s, awaited = self._get(rank, _SINCE_NS) / 1e9, bool(self._get(rank, _AWAITED))
        return Parting(manner != _EXITED, since_s, known, manner == _MISTAKEN, awaited)

    def ended(self, rank: int) -> Ended | None:
        """The process and its exit code; None while it runs."""
        return Ended(self._get(rank, _PID), self._get(rank, _CODE)) if self._get(rank, _HAS_ENDED) else None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """A context that one rank at a time is in. The kernel unlocks for a rank that dies.

        A rank that was stopped inside holds the others up for _LOCK_SECONDS; then they go on without the lock.
        """
        deadline = time.monotonic() + _LOCK_SECONDS
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)  # locks are of whom opens, not of the memory
        try:
            while time.monotonic() < deadline:
                with suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(0.001)
            yield
        finally:
            os.close(descriptor)

    def _get(self, rank: int, field: int) -> int:
        return self._words[rank * _WORDS + field]

    def _set(self, rank: int, field: int, value: int) -> None:
        self._words[rank * _WORDS + field] = value


def make_memory(size: int) -> int:
    """A descriptor of memory for the records of `size` ranks, all empty: nothing on disk, gone with its last user."""
    descriptor = os.memfd_create("farandole-ranks", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, _bytes(size))
    os.fchmod(descriptor, 0o600)
    return descriptor


def _bytes(size: int) -> int:
    return (size * _WORDS + 2 * _THINGS) * _WORD_BYTES


def _size(memory_bytes: int) -> int:
    """The number of ranks for which the memory has records."""
    return (memory_bytes // _WORD_BYTES - 2 * _THINGS) // _WORDS


def _digest(text: str) -> int:
    """Positive, and never 0, which says that there is none."""
    return int.from_bytes(hashlib.sha256(text.encode(errors="replace")).digest()[:_WORD_BYTES], "big") >> 1 | 1
