"""How soon connections notice that the other host is lost."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from farandole._start.sockets import notice_lost_hosts, silence_timeout_s

# Timeout -> seconds between probes, and their number; socket_test.cc has the same for the core.
PROBES = [(4.0, 1, 3), (1.0, 1, 1), (20.0, 1, 19), (20.5, 1, 20), (128.0, 1, 127), (129.0, 2, 64), (86400.0, 675, 127)]


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as made:
        yield made


def options_of(connection: socket.socket) -> tuple[int, ...]:
    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT", "TCP_NODELAY")
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    return tuple(connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names)


@pytest.mark.parametrize(("silence_s", "pause_s", "probes"), PROBES)
def test_a_connection_bears_silence_for_so_long(
    connection: socket.socket, silence_s: float, pause_s: int, probes: int
) -> None:
    notice_lost_hosts(connection, silence_s)
    assert options_of(connection) == (pause_s, pause_s, probes, silence_s * 1000, 1)


@pytest.mark.parametrize(("text", "timeout_ms"), [("", 4000), ("20", 20_000)])
def test_the_variable_says_how_long_it_is(connection: socket.socket, text: str, timeout_ms: int) -> None:
    notice_lost_hosts(connection, silence_timeout_s({"FARANDOLE_SILENCE_TIMEOUT": text}))
    assert options_of(connection) == (1, 1, timeout_ms // 1000 - 1, timeout_ms, 1)
