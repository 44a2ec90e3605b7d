"""Copies of commits outside of the ranks: their form, and the driver's shelf for them.

    bytes     mark, commits, size, HMAC of these and of the content    then the content

The HMAC is by a key of the job: a copy that is half sent or half written, or a stranger's, is none. Only ranks read
the content.
"""

from __future__ import annotations

import hmac
import socket
import struct
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farandole._start.connection import hear, hear_bytes, say

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


class Shelf:
    """The driver's place for the newest copy of a job, which outlives the hubs of its stages.

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

    def put(self, data: memoryview) -> str:
        """Take a copy. Returns why not, or ""."""
        found = read(self._key, data)
        if found is None:
            return "the copy has not arrived whole"
        self._newest = newest([self._newest, found])
        return ""

    def serve(self, connection: socket.socket) -> None:
        """Answer a rank that has proved the hub's key, until it ends. Raises one of `connection.FAILURES`."""
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
                why = self.put(hear_bytes(connection, size))
                say(connection, "refused" if why else "kept", why=why)
