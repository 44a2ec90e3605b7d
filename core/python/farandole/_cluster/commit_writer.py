"""Writes the commits of a rank outside of it, in the background, the newest first.

`commit()` only hands over a copy. While one is on its way the next waits, and is replaced by the one after it; so the
memory of two copies is taken at most. A failure is told once, and the job goes on: the former copy is whole.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from farandole._cluster import commit_store
from farandole._cluster.commit_store import CommitFolder, Copy, Piece
from farandole._start import environment
from farandole._start.connection import FAILURES, connect, hear, hear_bytes, say
from farandole._start.frames import FrameError, Message
from farandole._start.log import logger

_CONNECT_SECONDS = 10.0


class Destination(Protocol):
    """Where copies go."""

    @property
    def name(self) -> str:
        """For a sentence."""

    def write(self, commits: int, pieces: Sequence[Piece]) -> None:
        """Put a copy there. Raises one of `connection.FAILURES`."""

    def newest(self) -> Copy | None:
        """The whole copy with the most commits. Raises one of `connection.FAILURES`."""


def of_file(path: str) -> CommitWriter:
    """The writer that such a file describes. Raises OSError."""
    facts: dict[str, Any] = json.loads(Path(path).read_bytes())
    key = bytes.fromhex(facts["key"])
    destination: Destination
    if facts["folder"]:
        destination = CommitFolder(Path(facts["folder"]), facts["job"], key, facts["stage"])
    else:
        destination = _OnDriver(tuple(facts["endpoint"]), bytes.fromhex(facts["server_key"]), key)
    return CommitWriter(destination, facts["has_earlier"])


class CommitWriter:
    """Keeps the commits of this rank at a destination. See `farandole._elastic.copies.CommitWriter`."""

    def __init__(self, destination: Destination, has_earlier: bool) -> None:
        self.has_earlier, self._destination = has_earlier, destination
        self._changed = threading.Condition()
        self._waiting: tuple[int, Sequence[Piece]] | None = None
        self._is_busy = False
        self._told = ""
        self._thread: threading.Thread | None = None

    def save(self, commits: int, pieces: Sequence[Piece]) -> None:
        """Hand over a copy; one that waits still is replaced."""
        with self._changed:
            self._waiting = commits, pieces
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def newest(self) -> memoryview | None:
        """The content of the newest copy. Raises OSError."""
        try:
            found = self._destination.newest()
        except FAILURES as error:
            raise error if isinstance(error, OSError) else OSError(str(error)) from error
        return found.content if found else None

    def flush(self, seconds: float) -> bool:
        """Wait so long for what was handed over. Returns whether it has left."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting is None and not self._is_busy, seconds)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting is not None)
                assert self._waiting is not None
                (commits, pieces), self._waiting, self._is_busy = self._waiting, None, True
            try:
                self._destination.write(commits, pieces)
                self._told = ""
            except FAILURES as error:
                self._tell(commits, error)
            del pieces  # not until the next commit

    def _tell(self, commits: int, error: Exception) -> None:
        why = (isinstance(error, OSError) and error.strerror) or str(error)
        if why != self._told:
            self._told = why
            logger.warning(
                "commit %d could not be kept %s (%s); the job goes on, and the former copy stays.",
                commits,
                self._destination.name,
                why,
            )


class _OnDriver:
    """By a connection to the server, which is made anew after a failure."""

    name = "on the driver"

    def __init__(self, endpoint: tuple[str, int], server_key: bytes, key: bytes) -> None:
        self._endpoint, self._server_key, self._key = endpoint, server_key, key
        self._connection: socket.socket | None = None

    def write(self, commits: int, pieces: Sequence[Piece]) -> None:
        whole = [commit_store.head(self._key, commits, pieces), *pieces]
        with self._at_server() as server:
            say(server, "copy", size=sum(len(each) for each in whole))
            _check(hear(server))
            for piece in whole:
                server.sendall(piece)
            _check(hear(server))

    def newest(self) -> Copy | None:
        with self._at_server() as server:
            say(server, "newest")
            size = int(hear(server)["size"])
            return commit_store.read(self._key, hear_bytes(server, size))

    @contextlib.contextmanager
    def _at_server(self) -> Any:
        if self._connection is None:
            silence_s = environment.silence_timeout_s()
            self._connection = connect(self._endpoint, self._server_key, silence_s, _CONNECT_SECONDS)
            say(self._connection, "keeps commits")
        try:
            yield self._connection
        except FAILURES as error:
            if not isinstance(error, _RefusedError):
                self._connection.close()
                self._connection = None
            raise


class _RefusedError(FrameError):
    """The driver does not take a copy; the connection is as before."""


def _check(answer: Message) -> None:
    if answer["kind"] == "refused":
        raise _RefusedError(str(answer["why"]))
