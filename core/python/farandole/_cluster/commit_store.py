"""The commits of a job that a cluster runs in several stages: in the driver's memory, or in a folder.

Only ranks read the content of commits. They are known by an HMAC with a key of the job, so that one that is half sent,
or a stranger's, does not count.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from dataclasses import dataclass
from pathlib import Path

from farandole._elastic import commit_file
from farandole._elastic.commit_file import CommitFolder, Copy
from farandole._start.connection import hear, hear_bytes, say

MOST_BYTES = 4 << 30  # on the driver


class DriverStore:
    """The driver's store of the newest commit of each `elastic.run`, which outlives the servers of the stages.

    Args:
        key: of the job's commits.
        most_bytes: larger ones are refused.
    """

    def __init__(self, key: bytes, most_bytes: int = MOST_BYTES) -> None:
        self._key, self._most_bytes = key, most_bytes
        self._newest: dict[int, Copy] = {}
        self._one = threading.Lock()  # so that one copy at most is on its way beside those that are here

    def commits(self) -> int:
        """The number of commits of all runs."""
        return sum(each.commits for each in self._newest.values())

    def add(self, run: int, data: memoryview) -> str:
        """Take a copy. Returns why not, or ""."""
        found = commit_file.read(self._key, data)
        if found is None:
            return "the copy is incomplete"
        former = self._newest.get(run)
        if former is not None and former.commits > found.commits:
            return "the driver has a newer commit"
        self._newest[run] = found
        return ""

    def serve(self, connection: socket.socket) -> None:
        """Answer a rank that has proved the server's key, until it ends. Raises one of `connection.FAILURES`."""
        while True:
            asked = hear(connection)
            run = int(asked["run"])
            if asked["kind"] == "newest":
                here = self._newest[run].data if run in self._newest else memoryview(b"")
                say(connection, "copy", size=len(here))
                connection.sendall(here)
                continue
            size = int(asked["size"])
            if not 0 < size <= self._most_bytes:
                say(connection, "refused", why=f"the driver keeps at most {self._most_bytes >> 20} MiB")
                continue
            say(connection, "ready")
            with self._one:
                why = self.add(run, hear_bytes(connection, size))
                say(connection, "refused" if why else "kept", why=why)


@dataclass(frozen=True)
class CommitTarget:
    """Where ranks keep a job's commits; for its tasks. `folder`: "" for the driver; `key`: of the commits."""

    key: bytes
    folder: str = ""

    def to_file(self, endpoint: tuple[str, int], server_key: bytes) -> int:
        """A file in memory, with all that a rank needs; the descriptor is the caller's."""
        facts = {"key": self.key.hex(), "folder": self.folder, "endpoint": endpoint, "server_key": server_key.hex()}
        descriptor = os.memfd_create("farandole commits")
        os.write(descriptor, json.dumps(facts).encode())
        return descriptor


class CommitStore:
    """The commits of a job whose stages have ranks of their own.

    Args:
        folder: one that the driver and all hosts share, in which the job makes one of its own; "" for the driver's
            memory.
    """

    def __init__(self, folder: str = "") -> None:
        key = os.urandom(32)
        own = Path(folder, f"farandole-{os.urandom(8).hex()}") if folder else None
        self.target = CommitTarget(key, str(own or ""))
        self.store = None if own else DriverStore(key)
        self.folder = CommitFolder(own, key) if own else None

    def count(self) -> int:
        """The number of commits of all runs; 0 if there are none. Raises OSError."""
        return self.store.commits() if self.store else self.folder.commits() if self.folder else 0

    def close(self) -> None:
        """Remove what lies in a folder, as the job has ended."""
        if self.folder:
            self.folder.clear()
