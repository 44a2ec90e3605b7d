"""Finds the files of flight recorders, and reads them while their ranks write them.

Ranks import this file, too: _start/flight_files.py makes and removes these files.
"""

from __future__ import annotations

import contextlib
import hmac
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from farandole.observe.records import (
    ALL,
    COPIES,
    HEADER_BYTES,
    RecordError,
    Recording,
    TornError,
    Wanted,
    outline,
    parse,
)

VARIABLE = "FARANDOLE_FLIGHT_RECORDER"
_RUN_DIGITS = 12
_ATTEMPTS = 5  # to read a file that changes
_MOST_BYTES = 64 << 20  # of a file; those of recorders have half a megabyte


def name_of_job(key: bytes) -> str:
    """Return the name of a job, which is equal on all its ranks and does not reveal their key."""
    return hmac.new(key, b"flight recorder", "sha256").hexdigest()[:_RUN_DIGITS]


def folders(given: str) -> list[Path]:
    """Return the folders for this user's files, the preferred one first. `given` is the value of VARIABLE."""
    if given not in ("", "0"):
        return [Path(given)]
    return [Path(where) / f"farandole-{os.getuid()}" for where in ("/dev/shm", "/tmp")]


def paths(where: Iterable[Path], run: str = "") -> list[Path]:
    """Return the files of jobs whose name begins with `run`."""
    return [path for folder in where for path in sorted(folder.glob(f"{run}*.flight"))]


def outlines(found: Iterable[Path]) -> dict[Path, Recording]:
    """Read the headers of these files, without operations. Unreadable files are left out."""
    result = {}
    for path in found:
        with contextlib.suppress(OSError, RecordError), _opened(path) as (descriptor, _):
            result[path] = outline(os.pread(descriptor, HEADER_BYTES, 0))
    return result


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[int, int]]:
    """Open a file, and yield its descriptor and size."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid() or not HEADER_BYTES <= found.st_size <= _MOST_BYTES:
            raise RecordError("it is another user's, or has no recorder's size")
        yield descriptor, found.st_size
    finally:
        os.close(descriptor)


class Room:
    """Memory for the copies of a file. Allocating it for each look would cost more than the look."""

    def __init__(self) -> None:
        self._copies = [bytearray() for _ in range(COPIES)]

    def take(self, descriptor: int, size: int) -> list[bytearray]:
        """Copy the file several times in a row. The copies are valid until the next call."""
        for index, copy in enumerate(self._copies):
            if len(copy) != size:
                self._copies[index] = copy = bytearray(size)
            if (found := os.preadv(descriptor, [copy], 0)) != size:
                raise RecordError(f"it has {found} bytes, not {size}")
        return self._copies


def read(path: Path, wanted: Wanted = ALL, room: Room | None = None) -> Recording:
    """Read a file while its rank writes it. Raises OSError, RecordError."""
    room = room or Room()
    with _opened(path) as (descriptor, size):
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(TornError):
                return parse(room.take(descriptor, size), wanted)
        return parse(room.take(descriptor, size), wanted)


def read_all(found: Iterable[Path], wanted: Wanted) -> list[Recording]:
    """Read these files. Unreadable files are left out."""
    room, result = Room(), []
    for path in found:
        with contextlib.suppress(OSError, RecordError):
            result.append(read(path, wanted, room))
    return result
