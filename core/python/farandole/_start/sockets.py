"""Connections between processes of one job: how soon a lost host shows, and whose process the other end is."""

from __future__ import annotations

import os
import socket
import struct

_SILENCE_MS = 4000  # of a kernel, until its host is lost; as the core has it
_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_MS),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


def notice_lost_hosts(connection: socket.socket) -> None:
    """Let this TCP connection fail 4 s after the other host is gone. Raises OSError."""
    for option in _OPTIONS:
        connection.setsockopt(*option)


def peer_uid(connection: socket.socket) -> int:
    """The user whose process has the other end of this Unix socket, by the kernel's word. Raises OSError."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def is_ours(connection: socket.socket) -> bool:
    """Returns whether that is this user. Raises OSError."""
    return peer_uid(connection) == os.getuid()
