"""Messages between a task and the hub: first the proof of the key (proof.py), then one message each way."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

from farandole._start.proof import Proof, ProofError

_HEAD = struct.Struct("!I")
_MOST_BYTES = 1 << 20

Message = dict[str, Any]


class WireError(Exception):
    """The other end has gone, or says what makes no sense."""


def prove(connection: socket.socket, key: bytes, is_listener: bool) -> None:
    """Prove the key to the other end, which proves it to us. Raises WireError, and OSError.

    REQUIRES that no message follows a proof before its answer: bytes behind the proof are refused.
    """
    proof = Proof(key, is_listener)
    connection.sendall(proof.first())
    try:
        while not proof.is_done:
            data = connection.recv(4096)
            if not data:
                raise WireError("it ended the connection")
            answer, rest = proof.feed(data)
            connection.sendall(answer)
            if rest:
                raise WireError("it says more than it may")
    except ProofError as error:
        raise WireError("it does not have the key of this job") from error


def send(connection: socket.socket, message: Message) -> None:
    """Send a message. Raises OSError."""
    text = json.dumps(message).encode()
    connection.sendall(_HEAD.pack(len(text)) + text)


def receive(connection: socket.socket) -> Message:
    """The next message, and not a byte more. Raises WireError, and OSError."""
    (size,) = _HEAD.unpack(_exactly(connection, _HEAD.size))
    if size > _MOST_BYTES:
        raise WireError(f"its message has {size} bytes")
    try:
        found = json.loads(_exactly(connection, size))
    except ValueError as error:
        raise WireError("its message is no JSON") from error
    if not isinstance(found, dict):
        raise WireError("its message has no names")
    return found


def receive_bytes(connection: socket.socket, size: int) -> memoryview:
    """So many bytes that are no message. Raises WireError, and OSError."""
    room = memoryview(bytearray(size))
    at = 0
    while at < size:
        count = connection.recv_into(room[at:])
        if not count:
            raise WireError("it ended the connection")
        at += count
    return room


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise WireError("it ended the connection")
        data += piece
    return data
