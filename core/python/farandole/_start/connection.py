"""A new connection between two processes of a job: first the proof of the key (proof.py), then frames (frames.py).

These functions block. Each reads what it returns and not a byte more, so that another process may go on reading.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from farandole._start import sockets
from farandole._start.frames import HEAD_BYTES, FrameError, Message, content_of, message, size_of
from farandole._start.proof import Proof, ProofError

FAILURES = (OSError, ProofError, FrameError)
"""Raised by these functions if the other end is gone, lacks the key, or does not speak this protocol."""
PROOF_SECONDS = 5.0  # from the first packet to the end of the proof
_MOST_CALLERS = 512  # that have not proved themselves
_AGAIN_SECONDS = 0.1  # after a connection that could not be accepted
_CHUNK = 4096


def connect(
    endpoint: tuple[str, int], key: bytes, silence_s: float = 4.0, seconds: float = PROOF_SECONDS
) -> socket.socket:
    """A connection whose ends have proved the key. `silence_s`: of a lost host; `seconds`: to connect, and to prove."""
    made = socket.create_connection(endpoint, timeout=seconds)
    try:
        sockets.notice_lost_hosts(made, silence_s)
        prove(made, key, is_listener=False, seconds=seconds)
    except FAILURES:
        made.close()
        raise
    return made


def prove(connection: socket.socket, key: bytes, is_listener: bool, seconds: float = PROOF_SECONDS) -> None:
    """Prove the key to the other end, which proves it to us, in so many seconds. See `Proof.feed`."""
    proof, until = Proof(key, is_listener), time.monotonic() + seconds
    connection.sendall(proof.first())
    while not proof.is_done:
        connection.settimeout(max(1e-3, until - time.monotonic()))
        connection.sendall(proof.feed(connection.recv(_CHUNK)))
    connection.settimeout(None)


def say(connection: socket.socket, kind: str, **content: Any) -> None:
    """Send a message."""
    connection.sendall(message(kind, **content))


def hear(connection: socket.socket) -> Message:
    """Return the next frame, which must be a message."""
    size = size_of(bytes(hear_bytes(connection, HEAD_BYTES)))
    return content_of(bytes(hear_bytes(connection, size)))


def hear_bytes(connection: socket.socket, size: int) -> memoryview:
    """Return bytes that follow a message, which has told how many there are."""
    room = memoryview(bytearray(size))
    at = 0
    while at < size:
        count = connection.recv_into(room[at:])
        if not count:
            raise ConnectionError("it ended the connection")
        at += count
    return room


@dataclass
class Acceptor:
    """Takes in processes of a job that connect to this one: each proves the key and says what it is.

    `welcome` gets each connection whose other end has proved the key, with its first message, in a thread of its own.
    The connection is its own, unless it raises OSError, ValueError, or what else comes of a message without sense.
    """

    key: bytes
    silence_s: float
    welcome: Callable[[socket.socket, Message], None]
    strangers: set[str] = field(default_factory=set)  # addresses that came with another key

    def serve(self, listener: socket.socket) -> None:
        """Accept at this listener, until its `shutdown`."""
        room = threading.Semaphore(_MOST_CALLERS)

        def receive(made: socket.socket, address: str) -> None:
            try:
                try:
                    sockets.notice_lost_hosts(made, self.silence_s)
                    prove(made, self.key, is_listener=True)
                finally:
                    room.release()
                self.welcome(made, hear(made))
            except ProofError:
                self.strangers.add(address)
                made.close()
            except (OSError, KeyError, TypeError, ValueError):
                made.close()

        for made, peer in accepted(listener):
            room.acquire()
            address = str(peer[0]).partition("%")[0]
            threading.Thread(target=receive, args=(made, address), daemon=True).start()


def accepted(listener: socket.socket) -> Iterator[tuple[socket.socket, Any]]:
    """Each connection to it, with its address, until its `shutdown`."""
    while True:
        try:
            found = listener.accept()
        except OSError as error:
            if error.errno == errno.EINVAL:  # shut down
                return
            time.sleep(_AGAIN_SECONDS)  # no descriptor is left, for instance
            continue
        yield found
