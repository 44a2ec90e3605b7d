"""Connections between processes of one job: how soon a lost host shows, and whose process the other end is."""

from __future__ import annotations

import math
import os
import select
import socket
import struct
from collections.abc import Mapping

_LEAST_S, _MOST_S = 1, 86400  # as in the core
_MOST_PROBES = 127  # of a connection, which the kernel allows
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


def silence_timeout_s(environ: Mapping[str, str]) -> float:
    """When a host that says nothing counts as lost: FARANDOLE_SILENCE_TIMEOUT. Raises ValueError."""
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
    """Let this TCP connection fail so long after the other host is gone. Raises OSError."""
    pause_s, probes = probing(silence_s)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, pause_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, pause_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, probes)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silence_s * 1000))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def probing(silence_s: float) -> tuple[int, int]:
    """Seconds before each probe of an idle connection, and how many stay unanswered; as the core has it."""
    pause_s = math.ceil(math.ceil(silence_s) / (_MOST_PROBES + 1))
    return pause_s, max(1, math.ceil(math.ceil(silence_s) / pause_s) - 1)


def peer_uid(connection: socket.socket) -> int:
    """The user whose process has the other end of this Unix socket, by the kernel's word. Raises OSError."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def connect_to_ours(name: str, kind: socket.SocketKind, timeout_s: float | None = None) -> socket.socket:
    """A connection to this abstract name. Raises OSError; PermissionError where another user listens there."""
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
    """Returns whether the other end is closed. Reads nothing: another process may have a copy of the connection."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


def is_ours(connection: socket.socket) -> bool:
    """Returns whether that is this user. Raises OSError."""
    return peer_uid(connection) == os.getuid()
