"""Connects two processes of a job: first they prove the key (proof.py), then they exchange frames (frames.py).

These functions block. Each reads only what it returns, so that another process may go on reading.
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
_MOST_CALLERS = 512  # that have not proved the key yet
_AGAIN_SECONDS = 0.1  # after a connection that could not be accepted
_CHUNK = 4096


def connect(
    endpoint: tuple[str, int], key: bytes, silence_s: float = 4.0, seconds: float = PROOF_SECONDS
) -> socket.socket:
    """Connect, and prove the key, within `seconds` each. A host that is silent for `silence_s` counts as lost."""
    made = socket.create_connection(endpoint, timeout=seconds)
    try:
        sockets.notice_lost_hosts(made, silence_s)
        prove(made, key, is_listener=False, seconds=seconds)
    except FAILURES:
        made.close()
        raise
    return made


def prove(connection: socket.socket, key: bytes, is_listener: bool, seconds: float = PROOF_SECONDS) -> None:
    """Prove the key to the other end, and let it prove the key to us, within `seconds`. See `Proof.feed`."""
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
    """Return the `size` bytes that follow a message, which has announced their number."""
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
    """Accepts connections from processes of the job, each of which proves the key and introduces itself.

    `welcome` is called in a new thread for each connection whose other end has proved the key, with its first message.
    It owns the connection, unless it raises OSError, ValueError, or another error about a malformed message.
    """

    key: bytes
    silence_s: float
    welcome: Callable[[socket.socket, Message], None]
    strangers: set[str] = field(default_factory=set)  # addresses of callers with another key

    def serve(self, listener: socket.socket) -> None:
        """Accept connections until the listener is shut down."""
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
    """Yield each connection with its address, until the listener is shut down."""
    while True:
        try:
            found = listener.accept()
        except OSError as error:
            if error.errno == errno.EINVAL:  # shut down
                return
            time.sleep(_AGAIN_SECONDS)  # for example, no descriptor is left
            continue
        yield found
