"""Bytes between the actor of a node, the ranks there, and the launcher's ways to it.

rank's program <- unix socket -> actor      NUMBER, then messages: a length and so many bytes
_way.py        <- TCP ----------------> actor        proof of the token; then the agent's stdin, stdout, stderr
"""

from __future__ import annotations

import socket
import struct

NUMBER = struct.Struct("!q")  # of a rank: its own of the start, or the one with which it joined an elastic job
MARK_BYTES = 24  # before each call: what its rank writes when it has ended
_LENGTH = struct.Struct("!Q")


def exactly(channel: socket.socket, size: int) -> bytes | None:
    """So many bytes; None at the end of the stream."""
    data = bytearray()
    while len(data) < size:
        try:
            piece = channel.recv(min(size - len(data), 1 << 20))
        except ConnectionError:
            return None
        if not piece:
            return None
        data += piece
    return bytes(data)


def send(channel: socket.socket, data: bytes) -> None:
    """One message. Raises OSError."""
    channel.sendall(_LENGTH.pack(len(data)))
    channel.sendall(data)


def receive(channel: socket.socket) -> bytes | None:
    """The next message; None at the end of the stream."""
    head = exactly(channel, _LENGTH.size)
    return None if head is None else exactly(channel, _LENGTH.unpack(head)[0])
