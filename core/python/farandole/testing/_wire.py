"""Bytes between a test and its rank processes, by the framing of a job."""

from __future__ import annotations

import socket

from farandole._start.connection import hear, hear_bytes, say


def send(connection: socket.socket, data: bytes) -> None:
    """Send one message."""
    say(connection, "data", size=len(data))
    connection.sendall(data)


def receive(connection: socket.socket) -> bytes | None:
    """The next message; None where the other side is gone."""
    try:
        return bytes(hear_bytes(connection, hear(connection)["size"]))
    except ConnectionError:
        return None
