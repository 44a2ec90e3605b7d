"""A cluster whose driver is a server of Spark Connect. It uses DataFrames and the server's settings."""

from __future__ import annotations

import re
import socket
import threading
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any

from farandole_spark._slots import Slots
from farandole_spark._stage import Part, Stage

_LOCAL = re.compile(r"local\[(\d+)(?:,\s*\d+)?\]")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")
_ANY_PORT = 9


@dataclass(frozen=True)
class Connect:
    """The cluster of a session of Spark Connect."""

    session: Any

    def setting(self, name: str, otherwise: str = "") -> str:
        """Return a setting of the server, or `otherwise` if the server does not tell."""
        try:
            return str(self.session.conf.get(name, otherwise) or otherwise)
        except Exception:  # the server's errors have various classes
            return otherwise

    def slots(self) -> Slots:
        """Return the number of slots according to the settings. A server does not tell which are free."""
        names = ("spark.master", "spark.executor.instances", "spark.executor.cores", "spark.task.cpus")
        return Slots(slots_of_settings(*map(self.setting, names)), None)

    def addresses(self) -> tuple[str, str]:
        """Return this process's address for executors, from the route to the server, and the address to listen at."""
        server = self.setting("spark.driver.host", "127.0.0.1")
        try:
            family, kind, *_, to = socket.getaddrinfo(server, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                probe.connect(to)  # sends nothing
                return str(probe.getsockname()[0]), ""
        except OSError:
            return socket.gethostname(), ""

    def start(self, part: Part, tasks: int, title: str) -> Stage:
        """Start a stage."""
        tag = f"farandole-{uuid.uuid4().hex}"

        def job() -> None:
            self.session.addTag(tag)
            frame = self.session.range(0, tasks, 1, tasks)
            frame.mapInArrow(part, "nothing int", barrier=True).collect()

        return Stage(job, partial(self.session.interruptTag, tag), threading.Thread)


def slots_of_settings(master: str, executors: str, cores: str, cores_per_task: str) -> int | None:
    """Return the slots of a cluster with these settings, or None if they do not say."""
    per_task = int(cores_per_task) if cores_per_task.isdecimal() and int(cores_per_task) else 1
    if found := _LOCAL.fullmatch(master):
        return int(found[1]) // per_task
    if found := _LOCAL_CLUSTER.fullmatch(master):
        return int(found[1]) * (int(found[2]) // per_task)
    if executors.isdecimal() and cores.isdecimal():
        return int(executors) * (int(cores) // per_task)
    return None
