"""The names of this machine, which users write in lists of hosts."""

from __future__ import annotations

import os


def names() -> frozenset[str]:
    """The names that mean this machine, in lower case."""
    name = os.uname().nodename.lower()
    return frozenset({"localhost", "127.0.0.1", "::1", name, name.partition(".")[0]})
