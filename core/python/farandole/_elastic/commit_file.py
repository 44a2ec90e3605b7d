"""Commits as bytes, and the folder that keeps the newest ones on a disk.

    bytes     mark, commits, size, HMAC of these and of the content    then the content

A file is replaced only once the new one is on the disk, so a reader always finds a complete commit. The content is
pickled, so whoever can write it can run code in the ranks. If the job has a key, the HMAC proves that a commit is the
job's own; without a key, the file must belong to this user.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import struct
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from farandole._api.checkpoints import sync

_PRIVATE_FOLDER = 0o700
_OTHERS_WRITE = 0o022
_MARK = b"farandole commit 1\n"
_FACTS = struct.Struct(f"!{len(_MARK)}sQQ")
_MAC_BYTES = 32
HEAD_BYTES = _FACTS.size + _MAC_BYTES

Piece = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Copy:
    """A complete copy of a state."""

    commits: int
    data: memoryview  # including the head

    @property
    def content(self) -> memoryview:
        """Return the bytes of the state."""
        return self.data[HEAD_BYTES:]


def head(key: bytes, commits: int, pieces: Sequence[Piece]) -> bytes:
    """Return the bytes that precede the content."""
    facts = _FACTS.pack(_MARK, commits, sum(len(each) for each in pieces))
    return facts + _mac(key, [facts, *pieces])


def read(key: bytes, data: memoryview) -> Copy | None:
    """Return the copy in these bytes, or None if it is incomplete or was made with another key."""
    if len(data) < HEAD_BYTES:
        return None
    mark, commits, size = _FACTS.unpack(data[: _FACTS.size])
    if mark != _MARK or size != len(data) - HEAD_BYTES:
        return None
    mac = bytes(data[_FACTS.size : HEAD_BYTES])
    is_right = hmac.compare_digest(mac, _mac(key, [data[: _FACTS.size], data[HEAD_BYTES:]]))
    return Copy(commits, data) if is_right else None


def _mac(key: bytes, pieces: Iterable[Piece]) -> bytes:
    made = hmac.new(key, digestmod="sha256")
    for each in pieces:
        made.update(each)
    return made.digest()


@dataclass(frozen=True)
class CommitFolder:
    """The newest commit of each `elastic.run` of a job, one file each.

    `key` authenticates the job's commits; it is b"" for a folder that outlives the job and its key.
    """

    path: Path
    key: bytes = b""

    @property
    def name(self) -> str:
        """The name for messages."""
        return f"in {self.path}"

    def prepare(self) -> None:
        """Create the folder if it is missing, and check that it can be written to. Raises OSError."""
        self.path.mkdir(_PRIVATE_FOLDER, parents=True, exist_ok=True)
        self._check_owner(self.path.stat(), self.path)
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise PermissionError(f"{self.path} cannot be written to")
        for each in self.path.glob("run-*.part"):  # left by a rank that was killed while writing
            each.unlink()

    def write(self, run: int, commits: int, pieces: Sequence[Piece]) -> None:
        """Replace the commit of this `elastic.run`. The earlier one stays until the new one is on the disk.

        Raises OSError, also if the folder already has a later commit, which another job must have written.
        """
        file = self._file(run)
        if self._commits_in(file) > commits:
            raise FileExistsError(f"{file} has a later commit; give each job a folder of its own")
        descriptor, name = tempfile.mkstemp(".part", f"run-{run}.", self.path)  # readable only by this user
        partial = Path(name)
        try:
            with open(descriptor, "wb", buffering=0) as written:
                for piece in (head(self.key, commits, pieces), *pieces):
                    view = memoryview(piece)
                    while view:
                        view = view[written.write(view) :]
                os.fsync(written.fileno())
            os.replace(partial, file)
            sync(self.path)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise

    def newest(self, run: int) -> Copy | None:
        """Return the commit of this `elastic.run`, or None. Raises OSError."""
        file = self._file(run)
        try:
            with open(file, "rb") as opened:
                self._check_owner(os.fstat(opened.fileno()), file)
                data = memoryview(opened.read())
        except FileNotFoundError:
            return None
        if (found := read(self.key, data)) is None:
            raise OSError(f"{file} is damaged or no commit of this job; remove it to start from the beginning")
        return found

    def commits(self) -> int:
        """Return the number of commits of all runs, from the heads of the files."""
        return sum(self._commits_in(file) for file in self.path.glob("run-*.commit"))

    def clear(self) -> None:
        """Remove the folder when the job has ended."""
        for each in self.path.glob("run-*"):
            with contextlib.suppress(OSError):
                each.unlink()
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def _file(self, run: int) -> Path:
        return self.path / f"run-{run}.commit"

    def _check_owner(self, found: os.stat_result, file: Path) -> None:
        if not self.key and (found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE):
            raise PermissionError(f"{file} must belong to this user, and nobody else may write to it: chmod go-w")

    @staticmethod
    def _commits_in(file: Path) -> int:
        try:
            with open(file, "rb") as opened:
                facts = opened.read(_FACTS.size)
        except FileNotFoundError:
            return 0
        return int(_FACTS.unpack(facts)[1]) if len(facts) == _FACTS.size and facts.startswith(_MARK) else 0
