"""Connections between processes of a job: how soon they notice a lost host, and which user has the other end."""

from __future__ import annotations

import math
import os
import select
import socket
import struct
from collections.abc import Mapping

_LEAST_S, _MOST_S = 1, 86400  # as in the core
_MOST_PROBES = 127  # for a connection; the kernel's limit
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


def silence_timeout_s(environ: Mapping[str, str]) -> float:
    """Return FARANDOLE_SILENCE_TIMEOUT, the seconds after which a silent host counts as lost. Raises ValueError."""
    text = environ.get("FARANDOLE_SILENCE_TIMEOUT") or "4"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not _LEAST_S <= seconds <= _MOST_S:
        raise ValueError(
            f"FARANDOLE_SILENCE_TIMEOUT={text!r} is not understood; allowed: a number of seconds from {_LEAST_S} to "
            f"{_MOST_S}, without a unit"
        )
    return seconds


def notice_lost_hosts(connection: socket.socket, silence_s: float) -> None:
    """Let a TCP connection fail `silence_s` after the other host has vanished. Raises OSError."""
    pause_s, probes = probing(silence_s)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, pause_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, pause_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, probes)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silence_s * 1000))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def probing(silence_s: float) -> tuple[int, int]:
    """Return the seconds before each probe of an idle connection, and how many may stay unanswered, as in the core."""
    pause_s = math.ceil(math.ceil(silence_s) / (_MOST_PROBES + 1))
    return pause_s, max(1, math.ceil(math.ceil(silence_s) / pause_s) - 1)


def peer_uid(connection: socket.socket) -> int:
    """Return the user of the other end of a Unix socket, according to the kernel. Raises OSError."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def connect_to_ours(name: str, kind: socket.SocketKind, timeout_s: float | None = None) -> socket.socket:
    """Connect to an abstract name. Raises OSError, or PermissionError if another user listens there."""
    connection = socket.socket(socket.AF_UNIX, kind)
    try:
        connection.settimeout(timeout_s)
        connection.connect(f"\0{name}")
        if not is_ours(connection):
            raise PermissionError("another user listens there")
    except OSError:
        connection.close()
        raise
    return connection


def is_gone(connection: socket.socket) -> bool:
    """Return whether the other end is closed. Reads nothing, because another process may share the connection."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


def is_ours(connection: socket.socket) -> bool:
    """Return whether the other end belongs to this user. Raises OSError."""
    return peer_uid(connection) == os.getuid()
