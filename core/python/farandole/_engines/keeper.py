"""A rank's part in keeping commits outside: sends or writes them in the background, the newest first.

`commit()` only hands over a copy. While one is on its way the next waits, and is replaced by the one after it; so the
memory of two copies is taken at most. A failure is told once, and the job goes on: the former copy is whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from farandole._engines import copies
from farandole._engines.copies import Copy, Piece
from farandole._engines.copy_folder import Folder
from farandole._start import connection, environment, sockets
from farandole._start.connection import FAILURES, hear, hear_bytes, say
from farandole._start.frames import FrameError, Message
from farandole._start.log import logger

_CONNECT_SECONDS = 10.0


class Place(Protocol):
    """Where copies go."""

    @property
    def name(self) -> str:
        """For a sentence."""

    def write(self, commits: int, pieces: Sequence[Piece]) -> None:
        """Put a copy there. Raises one of `connection.FAILURES`."""

    def newest(self) -> Copy | None:
        """The whole copy with the most commits. Raises one of `connection.FAILURES`."""


@dataclass(frozen=True)
class Where:
    """Where a stage's commits go; for its tasks.

    `folder`: "" for the driver; `job` and `key`: of the copies; `has_earlier`: there is one of an earlier stage.
    """

    job: str
    key: bytes
    stage: int = 0
    folder: str = ""
    has_earlier: bool = False

    def lent(self, endpoint: tuple[str, int], hub_key: bytes) -> int:
        """A file in memory, with all that a rank needs; the descriptor is the caller's."""
        facts = {**vars(self), "key": self.key.hex(), "endpoint": endpoint, "hub_key": hub_key.hex()}
        descriptor = os.memfd_create("farandole commits")
        os.write(descriptor, json.dumps(facts).encode())
        return descriptor


def of_file(path: str) -> Keeper:
    """The keeper that such a file tells of. Raises OSError."""
    facts: dict[str, Any] = json.loads(Path(path).read_bytes())
    key = bytes.fromhex(facts["key"])
    place: Place
    if facts["folder"]:
        place = Folder(Path(facts["folder"]), facts["job"], key, facts["stage"])
    else:
        place = _OnDriver(tuple(facts["endpoint"]), bytes.fromhex(facts["hub_key"]), key)
    return Keeper(place, facts["has_earlier"])


class Keeper:
    """Keeps the commits of this rank at a place. See `farandole._elastic.copies.Keeper`."""

    def __init__(self, place: Place, has_earlier: bool) -> None:
        self.has_earlier, self._place = has_earlier, place
        self._changed = threading.Condition()
        self._waiting: tuple[int, Sequence[Piece]] | None = None
        self._is_busy = False
        self._told = ""
        self._thread: threading.Thread | None = None

    def keep(self, commits: int, pieces: Sequence[Piece]) -> None:
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
            found = self._place.newest()
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
                self._place.write(commits, pieces)
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
                self._place.name,
                why,
            )


class _OnDriver:
    """By a connection to the hub, which is made anew after a failure."""

    name = "on the driver"

    def __init__(self, endpoint: tuple[str, int], hub_key: bytes, key: bytes) -> None:
        self._endpoint, self._hub_key, self._key = endpoint, hub_key, key
        self._connection: socket.socket | None = None

    def write(self, commits: int, pieces: Sequence[Piece]) -> None:
        whole = [copies.head(self._key, commits, pieces), *pieces]
        with self._at_hub() as hub:
            say(hub, "copy", size=sum(len(each) for each in whole))
            _check(hear(hub))
            for piece in whole:
                hub.sendall(piece)
            _check(hear(hub))

    def newest(self) -> Copy | None:
        with self._at_hub() as hub:
            say(hub, "newest")
            size = int(hear(hub)["size"])
            return copies.read(self._key, hear_bytes(hub, size))

    @contextlib.contextmanager
    def _at_hub(self) -> Any:
        if self._connection is None:
            self._connection = self._connected()
        try:
            yield self._connection
        except FAILURES as error:
            if not isinstance(error, _RefusedError):
                self._connection.close()
                self._connection = None
            raise

    def _connected(self) -> socket.socket:
        made = socket.create_connection(self._endpoint, timeout=_CONNECT_SECONDS)
        try:
            sockets.notice_lost_hosts(made, environment.silence_timeout_s())
            connection.prove(made, self._hub_key, is_listener=False)
            say(made, "keeps commits")
            made.settimeout(None)
        except FAILURES:
            made.close()
            raise
        return made


class _RefusedError(FrameError):
    """The driver does not take a copy; the connection is as before."""


def _check(answer: Message) -> None:
    if answer["kind"] == "refused":
        raise _RefusedError(str(answer["why"]))
