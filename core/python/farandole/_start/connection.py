"""A new connection between two processes of a job: first the proof of the key (proof.py), then frames (frames.py).

These functions block. Each reads what it returns and not a byte more, so that another process may go on reading.
"""

from __future__ import annotations

import socket
from typing import Any

from farandole._start.frames import HEAD_BYTES, FrameError, Message, content_of, message, size_of
from farandole._start.proof import Proof, ProofError

FAILURES = (OSError, ProofError, FrameError)
"""What these functions raise where the other end has gone, lacks the key, or does not speak this protocol."""
_CHUNK = 4096


def prove(connection: socket.socket, key: bytes, is_listener: bool) -> None:
    """Prove the key to the other end, which proves it to us. See `Proof.feed`."""
    proof = Proof(key, is_listener)
    connection.sendall(proof.first())
    while not proof.is_done:
        connection.sendall(proof.feed(connection.recv(_CHUNK)))


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
