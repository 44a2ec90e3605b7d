"""One small record per rank in shared memory, in which the launcher and the ranks record how ranks end.

    rank     -> launcher   it has joined its world; its program ends, when, and because of which rank
    launcher -> ranks      a rank's process has ended, and with which exit code
    ranks    -> ranks      what one of them tells the user, so that the others do not repeat it

The launcher makes the memory and hands out a path below /proc, which the kernel opens only for the same user. Each
field is an aligned word that is written at once. The last word of a message says that the others are complete, so the
message of a rank that is killed while it writes does not count. Digests of reported errors follow the records:

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
_WORDS = 8  # of a record
_JOINS, _PARTING, _SINCE_NS, _CULPRIT, _HAS_ENDED, _CODE, _PID, _AWAITED = range(8)
_RAISED, _EXITED, _MISTAKEN = 1, 2, 3
_THINGS = 64  # at most; each rank tells what goes beyond
_LOCK_SECONDS = 0.2


@dataclass(frozen=True)
class Parting:
    """A rank's message that its program ends, written while its process was still running."""

    raised: bool  # true: by an uncaught exception; false: with the interpreter
    at_s: float  # by the machine's monotonic clock
    culprit: int | None  # the rank whose end had ended this rank's world, if any
    mistaken: bool = False  # the exception is an error of the program, which would come again
    awaited: bool = False  # the culprit did not end; others waited for it in vain


@dataclass(frozen=True)
class Ended:
    """The launcher's message that a rank's process has ended."""

    pid: int
    code: int  # the exit code, or minus the signal


class RankRecords:
    """The records of all ranks of one job."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._words = memoryview(mmap.mmap(descriptor, _bytes(size))).cast("q")
        self._path = f"/proc/self/fd/{descriptor}"
        self.size = size

    @classmethod
    def open(cls, path: str) -> RankRecords:
        """Open the records at a path. Raises OSError or ValueError if there are none."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            records = cls(descriptor, _size(os.fstat(descriptor).st_size))
        finally:
            os.close(descriptor)
        records._path = path
        return records

    # Written by the rank

    def join(self, rank: int, world: int) -> None:
        """Record that `rank` has joined the world with this number, and is no longer about to end."""
        self._set(rank, _PARTING, 0)
        self._set(rank, _JOINS, world)

    def part(self, rank: int, raised: bool, culprit: int | None, mistaken: bool = False, awaited: bool = False) -> None:
        """Record that the program of `rank` ends. Only the first call counts."""
        if self._get(rank, _PARTING):
            return
        self._set(rank, _SINCE_NS, time.monotonic_ns())
        self._set(rank, _CULPRIT, -1 if culprit is None else culprit)
        self._set(rank, _AWAITED, int(awaited))
        self._set(rank, _PARTING, _MISTAKEN if mistaken else _RAISED if raised else _EXITED)

    def who_tells(self, rank: int, things: Sequence[str]) -> list[int]:
        """Return, for each thing, the rank that was the first to ask about it, which may be `rank` itself."""
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
        """Record that the process of `rank` has ended. `joins` is its last world, if it is on another host."""
        if joins:
            self._set(rank, _JOINS, joins)
        self._set(rank, _PID, pid)
        self._set(rank, _CODE, code)
        self._set(rank, _HAS_ENDED, 1)

    # Read by both

    def joins(self, rank: int) -> int:
        """Return the number of the last world that the rank has joined, or 0. Later worlds have larger numbers."""
        return self._get(rank, _JOINS)

    def parting(self, rank: int) -> Parting | None:
        """Return how the rank announced its end, or None."""
        manner = self._get(rank, _PARTING)
        if not manner:
            return None
        culprit = self._get(rank, _CULPRIT)
        known = culprit if 0 <= culprit < self.size else None
        since_s, awaited = self._get(rank, _SINCE_NS) / 1e9, bool(self._get(rank, _AWAITED))
        return Parting(manner != _EXITED, since_s, known, manner == _MISTAKEN, awaited)

    def ended(self, rank: int) -> Ended | None:
        """Return the rank's process and its exit code, or None while it runs."""
        return Ended(self._get(rank, _PID), self._get(rank, _CODE)) if self._get(rank, _HAS_ENDED) else None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold a lock among the ranks. The kernel releases it for a rank that dies.

        A rank that is stopped while it has the lock delays the others for _LOCK_SECONDS. Then they go on without it.
        """
        deadline = time.monotonic() + _LOCK_SECONDS
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)  # a lock belongs to an opened file
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
    """Return a descriptor of memory for `size` empty records. It is not on disk, and disappears with its last user."""
    descriptor = os.memfd_create("farandole-ranks", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, _bytes(size))
    os.fchmod(descriptor, 0o600)
    return descriptor


def _bytes(size: int) -> int:
    return (size * _WORDS + 2 * _THINGS) * _WORD_BYTES


def _size(memory_bytes: int) -> int:
    """Return the number of ranks for which the memory has records."""
    return (memory_bytes // _WORD_BYTES - 2 * _THINGS) // _WORDS


def _digest(text: str) -> int:
    """Return a positive digest; 0 means that there is none."""
    return int.from_bytes(hashlib.sha256(text.encode(errors="replace")).digest()[:_WORD_BYTES], "big") >> 1 | 1
