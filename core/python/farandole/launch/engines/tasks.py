"""An engine whose tasks have agents already, and connect them to a hub of the caller: Spark."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from functools import partial

from farandole._start import sockets
from farandole.launch.engines import Engine

_ASK_SECONDS = 10.0
_TRAVELS = ("FARANDOLE_", "HOROVOD_", "NCCL_")
_STAYS = ("FARANDOLE_RUN_", "FARANDOLE_ADDRESS", "FARANDOLE_SSH", "FARANDOLE_TIMELINE")


def engine(name: str, hub: str) -> Engine:
    """The engine of this name. `hub`: the abstract name of the Unix socket that has the connections to agents."""
    return Engine(lambda _environ: None, name, connect=partial(_connect, hub))


def _connect(hub: str, host: str) -> socket.socket:
    """The connection to the agent of a host; one that is at its end where there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.settimeout(_ASK_SECONDS)
        try:
            asked.connect(f"\0{hub}")
            if sockets.is_ours(asked):
                asked.sendall(host.encode())
                _, descriptors, _, _ = socket.recv_fds(asked, 1, 1)
                if descriptors:
                    return socket.socket(fileno=descriptors[0])
        except OSError:
            pass
    ended, other = socket.socketpair()
    other.close()
    return ended


def variables(base: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The variables of the driver that travel to tasks: our own settings, and those that were given for the ranks."""
    own = {name: value for name, value in base.items() if name.startswith(_TRAVELS) and not name.startswith(_STAYS)}
    return {**own, **given}
