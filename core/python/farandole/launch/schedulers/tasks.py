"""A cluster whose tasks have agents already, and connect them to a server of the caller: Ray, Spark."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from functools import partial
from typing import Any

from farandole._start import sockets
from farandole._start.connection import FAILURES, hear, say
from farandole.launch.hosts import HostList, HostSlots
from farandole.launch.schedulers import Scheduler
from farandole.launch.spec import SpecError

_ASK_SECONDS = 2.0  # for less time than agents wait for a word of the launcher, which waits here
_TRAVELS = ("FARANDOLE_", "HOROVOD_", "NCCL_")
_STAYS = ("FARANDOLE_RUN_", "FARANDOLE_ADDRESS", "FARANDOLE_SSH", "FARANDOLE_TIMELINE")


def scheduler(name: str, server: str) -> Scheduler:
    """The scheduler of this name. `server`: the abstract name of the Unix socket that has the connections to agents."""
    return Scheduler(
        lambda _environ: None, name, connect=partial(_connect, server), hosts=partial(_hosts, name, server)
    )


def _connect(server: str, host: str) -> socket.socket:
    """The connection to the agent of a host; one that is at its end where there is none."""
    with contextlib.suppress(OSError), _asked(server, "agent", host=host) as asked:
        _, descriptors, _, _ = socket.recv_fds(asked, 1, 1)
        if descriptors:
            return socket.socket(fileno=descriptors[0])
    ended, other = socket.socketpair()
    other.close()
    return ended


def _hosts(name: str, server: str) -> HostList:
    """The hosts with tasks that are there now. Raises SpecError where the server does not answer."""
    try:
        with _asked(server, "hosts") as asked:
            return HostList(tuple(HostSlots(str(host), int(count)) for host, count in hear(asked)["hosts"]), name)
    except FAILURES as error:
        raise SpecError(f"the driver does not say which hosts {name} has: {error}.") from error


def _asked(server: str, kind: str, **content: Any) -> socket.socket:
    """A connection to the server on which an answer comes. Raises OSError."""
    asked = sockets.connect_to_ours(server, socket.SOCK_STREAM, _ASK_SECONDS)
    say(asked, kind, **content)
    return asked


def variables(base: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The variables of the driver that travel to tasks: our own settings, and those that were given for the ranks."""
    own = {name: value for name, value in base.items() if name.startswith(_TRAVELS) and not name.startswith(_STAYS)}
    return {**own, **given}
