"""Bytes between the actor of a node, the ranks there, and the launcher's ways to it.

rank's program <- unix socket -> actor      NUMBER, then messages: a length and so many bytes
_way.py        <- TCP ----------------> actor        proof of the token; then the agent's stdin, stdout, stderr
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
from typing import NamedTuple

NUMBER = struct.Struct("!q")  # of a rank: its own of the start, or the one with which it joined an elastic job
MARK_BYTES = 24  # before each call: what its rank writes when it has ended
_LENGTH = struct.Struct("!Q")
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


class Keys(NamedTuple):
    """Two secrets of a job, in hexadecimal. Actors get both from Ray."""

    ways: str  # is proved by programs that reach an actor
    ranks: str  # makes, with what the launcher says, the key of the ranks; it never travels through a way


def new_keys() -> Keys:
    """For one job."""
    return Keys(secrets.token_hex(32), secrets.token_hex(32))


def is_ours(channel: socket.socket) -> bool:
    """Returns whether the other end of a Unix socket is a process of this user. Raises OSError."""
    _, uid, _ = _CREDENTIALS.unpack(channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return bool(uid == os.getuid())


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
