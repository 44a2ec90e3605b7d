"""Checks TCP to 127.0.0.1 and the look-up of this host's name."""

from __future__ import annotations

import os
import socket
import threading
import time

from farandole.observe.doctor.finding import Finding, error_of, fail_unless, warn_unless

SLOW_S = 1.0
_LIMIT_S = 5.0


def check() -> list[Finding]:
    """Check this machine, in 5 seconds at most."""
    return [loopback(error_of(_use_loopback)), _host_name()]


def _use_loopback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_LIMIT_S)
        with socket.create_connection(server.getsockname(), timeout=_LIMIT_S) as caller:
            callee, _ = server.accept()
            with callee:
                callee.settimeout(_LIMIT_S)
                caller.sendall(b"x")
                if callee.recv(1) != b"x":
                    raise OSError("a byte was lost")


def _host_name() -> Finding:
    """Look up the host's name in a thread, because the resolver has no time limit."""
    name, addresses = os.uname().nodename, set[str]()
    errors: list[str] = []

    def ask() -> None:
        errors.append(error_of(lambda: addresses.update(str(each[4][0]) for each in socket.getaddrinfo(name, None))))

    thread, begin = threading.Thread(target=ask, daemon=True), time.monotonic()
    thread.start()
    thread.join(_LIMIT_S)
    error = errors[0] if errors else f"no answer after {_LIMIT_S:g} s"
    return host_name(name, sorted(addresses), time.monotonic() - begin, error)


def loopback(error: str) -> Finding:
    """Assess the attempt to connect."""
    bad = f"TCP to 127.0.0.1 does not work: {error}"
    fix = "Bring the interface up (`ip link set lo up`) and let the firewall pass it."
    return fail_unless(not error, "loopback", "TCP to 127.0.0.1 works", fix, bad)


def host_name(name: str, addresses: list[str], took_s: float, error: str) -> Finding:
    """Assess the look-up of the host's name."""
    text = f"{name} is {', '.join(addresses)}, found in {1000 * took_s:.0f} ms"
    found = f"{name} cannot be resolved: {error}" if error else text
    bad = f"{found}; frameworks ask for it when they start, and then wait"
    fix = f"Add a line to /etc/hosts: 127.0.1.1 {name}"
    return warn_unless(not error and took_s <= SLOW_S, "host name", text, fix, bad)
