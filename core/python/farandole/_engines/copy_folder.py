"""Copies of commits in a folder that all hosts of a job and the driver share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from farandole._engines import copies
from farandole._engines.copies import Copy, Piece

_PRIVATE = 0o600


@dataclass(frozen=True)
class Folder:
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
                for piece in (copies.head(self.key, commits, pieces), *pieces):
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
        return copies.newest(
            copies.read(self.key, memoryview(each.read_bytes())) for each in self.path.glob(f"{self._prefix}*.commit")
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
