"""The rank's part of keeping commits with a cluster: on the driver, or in the folder that the driver names."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from farandole._elastic import commit_file
from farandole._elastic.commit_file import CommitFolder, Copy, Piece
from farandole._elastic.commit_writer import CommitWriter
from farandole._start import environment
from farandole._start.connection import FAILURES, connect, hear, hear_bytes, say
from farandole._start.frames import FrameError, Message

_CONNECT_SECONDS = 10.0


def writer_of(path: str) -> CommitWriter:
    """The writer that this file describes, see `CommitTarget.to_file`. Raises OSError."""
    facts: dict[str, Any] = json.loads(Path(path).read_bytes())
    key = bytes.fromhex(facts["key"])
    if facts["folder"]:
        return CommitWriter(CommitFolder(Path(facts["folder"]), key))
    return CommitWriter(_Driver(tuple(facts["endpoint"]), bytes.fromhex(facts["server_key"]), key))


class _Driver:
    """A destination: the driver, by a connection to its server, which is made anew after a failure."""

    name = "on the driver"

    def __init__(self, endpoint: tuple[str, int], server_key: bytes, key: bytes) -> None:
        self._endpoint, self._server_key, self._key = endpoint, server_key, key
        self._connection: socket.socket | None = None

    def prepare(self) -> None:
        """Do nothing: `newest` connects."""

    def write(self, run: int, commits: int, pieces: Sequence[Piece]) -> None:
        """See `Destination`."""
        whole = [commit_file.head(self._key, commits, pieces), *pieces]
        with self._at_server() as server:
            say(server, "copy", run=run, size=sum(len(each) for each in whole))
            _check(hear(server))
            for piece in whole:
                server.sendall(piece)
            _check(hear(server))

    def newest(self, run: int) -> Copy | None:
        """See `Destination`."""
        with self._at_server() as server:
            say(server, "newest", run=run)
            size = int(hear(server)["size"])
            return commit_file.read(self._key, hear_bytes(server, size))

    @contextlib.contextmanager
    def _at_server(self) -> Iterator[socket.socket]:
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
