"""Copies of commits outside of the ranks: their form, where they are stored, and the driver's view of them.

    bytes     mark, commits, size, HMAC of these and of the content    then the content

The HMAC is by a key of the job: a copy that is half sent or half written, or a stranger's, is none. Only ranks read
the content.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import socket
import struct
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from farandole._start.connection import hear, hear_bytes, say

_PRIVATE = 0o600
MOST_BYTES = 4 << 30  # on the driver
_MARK = b"farandole commit 1\n"
_FACTS = struct.Struct(f"!{len(_MARK)}sQQ")
_MAC_BYTES = 32
HEAD_BYTES = _FACTS.size + _MAC_BYTES

Piece = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Copy:
    """A copy that is whole."""

    commits: int
    data: memoryview  # with its head

    @property
    def content(self) -> memoryview:
        """The bytes that the state has given."""
        return self.data[HEAD_BYTES:]


def head(key: bytes, commits: int, pieces: Sequence[Piece]) -> bytes:
    """The bytes before the content."""
    facts = _FACTS.pack(_MARK, commits, sum(len(each) for each in pieces))
    return facts + _mac(key, [facts, *pieces])


def read(key: bytes, data: memoryview) -> Copy | None:
    """The copy in these bytes; None where it is not whole, or not of this job."""
    if len(data) < HEAD_BYTES:
        return None
    mark, commits, size = _FACTS.unpack(data[: _FACTS.size])
    if mark != _MARK or size != len(data) - HEAD_BYTES:
        return None
    mac = bytes(data[_FACTS.size : HEAD_BYTES])
    is_right = hmac.compare_digest(mac, _mac(key, [data[: _FACTS.size], data[HEAD_BYTES:]]))
    return Copy(commits, data) if is_right else None


def newest(found: Iterable[Copy | None]) -> Copy | None:
    """That with the most commits."""
    return max((each for each in found if each is not None), key=lambda each: each.commits, default=None)


def _mac(key: bytes, pieces: Iterable[Piece]) -> bytes:
    made = hmac.new(key, digestmod="sha256")
    for each in pieces:
        made.update(each)
    return made.digest()


class DriverStore:
    """The driver's store of the newest copy of a job, which outlives the servers of its stages.

    Args:
        key: of the job's copies.
        most_bytes: larger ones are refused.
    """

    def __init__(self, key: bytes, most_bytes: int = MOST_BYTES) -> None:
        self._key, self._most_bytes = key, most_bytes
        self._newest: Copy | None = None
        self._one = threading.Lock()  # so that one copy at most is on its way beside the one that is here

    def commits(self) -> int:
        """How many commits are in the newest copy; 0 where there is none."""
        return self._newest.commits if self._newest else 0

    def add(self, data: memoryview) -> str:
        """Take a copy. Returns why not, or ""."""
        found = read(self._key, data)
        if found is None:
            return "the copy has not arrived whole"
        self._newest = newest([self._newest, found])
        return ""

    def serve(self, connection: socket.socket) -> None:
        """Answer a rank that has proved the server's key, until it ends. Raises one of `connection.FAILURES`."""
        while True:
            asked = hear(connection)
            if asked["kind"] == "newest":
                here = self._newest.data if self._newest else memoryview(b"")
                say(connection, "copy", size=len(here))
                connection.sendall(here)
                continue
            size = int(asked["size"])
            if not 0 < size <= self._most_bytes:
                say(connection, "refused", why=f"the driver keeps at most {self._most_bytes >> 20} MiB")
                continue
            say(connection, "ready")
            with self._one:
                why = self.add(hear_bytes(connection, size))
                say(connection, "refused" if why else "kept", why=why)


@dataclass(frozen=True)
class CommitFolder:
    """The copies of one job, a file for each stage; other jobs may have theirs beside them.

    `job`: its number, of letters and digits; `key`: of its copies; `stage`: of this process.
    """

    path: Path
    job: str
    key: bytes
    stage: int = 0

    @property
    def name(self) -> str:
        """For a sentence."""
        return f"in {self.path}"

    def write(self, commits: int, pieces: Sequence[Piece]) -> None:
        """Replace the copy of our stage; the former one stays until the new one is on the disk. Raises OSError."""
        name = self.path / f"{self._prefix}{self.stage}.commit"
        beside = name.with_suffix(".part")
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _PRIVATE)
            with open(descriptor, "wb", buffering=0) as file:
                for piece in (head(self.key, commits, pieces), *pieces):
                    view = memoryview(piece)
                    while view:
                        view = view[file.write(view) :]
                os.fsync(file.fileno())
            os.replace(beside, name)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise

    def newest(self) -> Copy | None:
        """The whole copy with the most commits. Raises OSError."""
        return newest(
            read(self.key, memoryview(each.read_bytes())) for each in self.path.glob(f"{self._prefix}*.commit")
        )

    def commits(self) -> int:
        """How many commits are in the newest copy; 0 where there is none. Raises OSError."""
        found = self.newest()
        return found.commits if found else 0

    def clear(self) -> None:
        """Remove the copies, as the job has ended."""
        for each in self.path.glob(f"{self._prefix}*"):
            with contextlib.suppress(OSError):
                each.unlink()

    @property
    def _prefix(self) -> str:
        return f"farandole-{self.job}-"


@dataclass(frozen=True)
class CommitTarget:
    """Where a stage's commits go; for its tasks.

    `folder`: "" for the driver; `job` and `key`: of the copies; `has_earlier`: there is one of an earlier stage.
    """

    job: str
    key: bytes
    stage: int = 0
    folder: str = ""
    has_earlier: bool = False

    def to_file(self, endpoint: tuple[str, int], server_key: bytes) -> int:
        """A file in memory, with all that a rank needs; the descriptor is the caller's."""
        facts = {**vars(self), "key": self.key.hex(), "endpoint": endpoint, "server_key": server_key.hex()}
        descriptor = os.memfd_create("farandole commits")
        os.write(descriptor, json.dumps(facts).encode())
        return descriptor


class CommitStore:
    """The commits of a job that a cluster runs in several stages, each with ranks of its own.

    Args:
        folder: one that the driver and all hosts share; "" for the driver's memory.
    """

    def __init__(self, folder: str = "") -> None:
        self._target = CommitTarget(os.urandom(8).hex(), os.urandom(32), 0, folder)
        self.store = None if folder else DriverStore(self._target.key)
        self.folder = CommitFolder(Path(folder), self._target.job, self._target.key) if folder else None

    def of_stage(self, stage: int) -> CommitTarget:
        """Where the ranks of a stage keep theirs; the first one is 0."""
        return replace(self._target, stage=stage, has_earlier=stage > 0)

    def count(self) -> int:
        """How many commits are in the newest copy; 0 where there is none."""
        return self.store.commits() if self.store else self.folder.commits() if self.folder else 0

    def close(self) -> None:
        """Remove what lies in a folder, as the job has ended."""
        if self.folder:
            self.folder.clear()
