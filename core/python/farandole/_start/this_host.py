"""This machine: its names in lists of hosts, and the identity by which processes notice that they share it."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def names() -> frozenset[str]:
    """Return the names of this machine, in lower case."""
    name = os.uname().nodename.lower()
    return frozenset({"localhost", "127.0.0.1", "::1", name, name.partition(".")[0]})


def identity() -> str:
    """Return the identity of this host. Processes with the same one can use abstract Unix sockets."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()} {boot_id} {os.stat('/proc/self/ns/net').st_ino}"
