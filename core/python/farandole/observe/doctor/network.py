"""Checks TCP to 127.0.0.1 and the look-up of this host's name."""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import dataclass

from farandole.observe.doctor.finding import Finding, fail, ok, warn

SLOW_S = 1.0
_LIMIT_S = 5.0


@dataclass(frozen=True)
class Facts:
    """An error text is "" where it worked."""

    loopback_error: str
    host: str
    addresses: tuple[str, ...]  # of `host`
    resolve_s: float
    resolve_error: str


def gather() -> Facts:
    """Ask this machine; takes 5 seconds at most."""
    host = os.uname().nodename
    addresses, resolve_s, error = _resolve(host)
    return Facts(_loopback_error(), host, addresses, resolve_s, error)


def _loopback_error() -> str:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(_LIMIT_S)
            with socket.create_connection(server.getsockname(), timeout=_LIMIT_S) as caller:
                callee, _ = server.accept()
                with callee:
                    callee.settimeout(_LIMIT_S)
                    caller.sendall(b"x")
                    return "" if callee.recv(1) == b"x" else "a byte was lost"
    except OSError as error:
        return error.strerror or str(error)


def _resolve(host: str) -> tuple[tuple[str, ...], float, str]:
    """(addresses, seconds, error); the resolver has no time limit of its own, so it is asked in a thread."""
    answers: list[tuple[str, ...]] = []
    errors: list[str] = []

    def ask() -> None:
        try:
            answers.append(tuple(sorted({str(item[4][0]) for item in socket.getaddrinfo(host, None)})))
        except OSError as error:
            errors.append(error.strerror or str(error))

    thread = threading.Thread(target=ask, daemon=True)
    begin = time.monotonic()
    thread.start()
    thread.join(_LIMIT_S)
    took = time.monotonic() - begin
    if thread.is_alive():
        return (), took, f"no answer after {_LIMIT_S:g} s"
    return (answers[0] if answers else ()), took, (errors[0] if errors else "")


def judge(facts: Facts) -> list[Finding]:
    """Facts of the network -> findings."""
    return [_loopback(facts), _host_name(facts)]


def _loopback(facts: Facts) -> Finding:
    if not facts.loopback_error:
        return ok("loopback", "TCP to 127.0.0.1 works")
    return fail(
        "loopback",
        f"TCP to 127.0.0.1 does not work: {facts.loopback_error}",
        "Bring the interface up (`ip link set lo up`) and let the firewall pass it.",
    )


def _host_name(facts: Facts) -> Finding:
    if facts.resolve_error:
        text = f"{facts.host} cannot be resolved: {facts.resolve_error}"
    else:
        text = f"{facts.host} is {', '.join(facts.addresses)}, found in {1000 * facts.resolve_s:.0f} ms"
    if not facts.resolve_error and facts.resolve_s <= SLOW_S:
        return ok("host name", text)
    return warn(
        "host name",
        f"{text}; frameworks ask for it when they start, and then wait",
        f"Add a line to /etc/hosts: 127.0.1.1 {facts.host}",
    )
