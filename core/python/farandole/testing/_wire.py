"""Messages between a test and its rank processes: 8 bytes of length, then the content."""

from __future__ import annotations

import socket
import struct

_LENGTH = struct.Struct("!Q")


def send(connection: socket.socket, data: bytes) -> None:
    """Send one message."""
    connection.sendall(_LENGTH.pack(len(data)))
    connection.sendall(data)


def receive(connection: socket.socket) -> bytes | None:
    """The next message; None where the other side is gone."""
    head = _exactly(connection, _LENGTH.size)
    return None if head is None else _exactly(connection, _LENGTH.unpack(head)[0])


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    received = bytearray()
    while len(received) < count:
        try:
            piece = connection.recv(min(count - len(received), 1 << 20))
        except ConnectionError:
            return None
        if not piece:
            return None
        received += piece
    return bytes(received)
