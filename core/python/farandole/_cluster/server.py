"""The server in the driver to which the tasks of a cluster connect, and which the launcher asks for hosts.

A task connects by TCP, proves the server's key and says what it is. The launcher asks at a Unix socket of this user
which hosts there are, and for the agent of one: then the first task of that host hears that it leads, and the launcher
gets its connection. The other tasks wait until the server closes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from dataclasses import dataclass, field

from farandole._cluster import hosts as cluster_hosts
from farandole._cluster.commit_store import CommitTarget, DriverStore
from farandole._cluster.hosts import Host, Task
from farandole._cluster.task import Invitation
from farandole._start import connection, environment, sockets
from farandole._start.connection import hear, say
from farandole._start.frames import Message

_ASK_SECONDS = 5.0
_POLL_SECONDS = 0.1


@dataclass(eq=False)
class _Met:
    """A task with its connection, of which the launcher has a copy once the task leads."""

    task: Task
    connection: socket.socket
    leads: bool = False
    is_released: bool = False


@dataclass
class TaskServer:
    """Meets tasks at `address`. Use it as a context: leaving it ends all connections.

    `bind`: another address to listen at, where the driver is behind a translation of addresses.
    `store`: takes the commits that ranks keep outside.
    """

    address: str
    bind: str = ""
    port: int = 0
    store: DriverStore | None = None
    key: bytes = field(default_factory=lambda: os.urandom(32), repr=False)
    _met: list[_Met] = field(default_factory=list, repr=False)
    _givers: list[socket.socket] = field(default_factory=list, repr=False)  # ranks that give commits
    _names: dict[str, str] = field(default_factory=dict, repr=False)  # of hosts, by their identities

    def __enter__(self) -> TaskServer:
        where = self.bind or self.address
        family = socket.AF_INET6 if ":" in where else socket.AF_INET
        self._listener = socket.create_server((where, self.port), family=family, backlog=1024)
        self.port = self._listener.getsockname()[1]
        self.name = f"farandole-server-{os.urandom(16).hex()}"
        self._asked = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._asked.bind(f"\0{self.name}")
        self._asked.listen(1024)
        self._changed = threading.Condition()
        acceptor = connection.Acceptor(self.key, environment.silence_timeout_s(), self._welcome)
        accepting = threading.Thread(target=acceptor.serve, args=(self._listener,), daemon=True)
        self._threads = accepting, threading.Thread(target=self._answer_all, daemon=True)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for listener, thread in zip((self._listener, self._asked), self._threads, strict=True):
            with contextlib.suppress(OSError):  # left before
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            listener.close()
        for each in [*(met.connection for met in self._met), *self._givers]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits there
            each.close()
        self._met.clear()

    @property
    def endpoint(self) -> tuple[str, int]:
        """The address to which tasks connect."""
        return self.address, self.port

    def invite(self, commits: CommitTarget | None = None) -> Invitation:
        """The facts that a task needs; see `Invitation`."""
        return Invitation(self.endpoint, self.key, commits)

    def tasks(self) -> list[Task]:
        """The tasks that are here, also those with agents."""
        with self._changed:
            for met in [each for each in self._met if sockets.is_gone(each.connection)]:
                met.connection.close()
                self._met.remove(met)
            return [met.task for met in self._met if not met.is_released]

    def hosts(self) -> list[Host]:
        """The hosts of these tasks, in the order of their ranks. A host keeps its name."""
        return cluster_hosts.by_host(self.tasks(), self._names)

    def wait(self, tasks: int, seconds: float) -> bool:
        """Wait for so many tasks. Returns whether they are all here."""
        deadline = time.monotonic() + seconds
        while len(self.tasks()) < tasks:
            with self._changed:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, _POLL_SECONDS))
        return True

    def release(self, order: int) -> None:
        """Count this task no longer, as its host will go away. It may go on until then."""
        with self._changed:
            for met in self._met:
                met.is_released |= met.task.order == order

    # The threads

    def _welcome(self, made: socket.socket, message: Message) -> None:
        if message["kind"] == "keeps commits" and self.store is not None:
            self._givers.append(made)
            with made, contextlib.suppress(*connection.FAILURES, KeyError, TypeError, ValueError):
                self.store.serve(made)
            self._givers.remove(made)
            return
        gpus = tuple(map(str, message["gpus"]))
        task = Task(int(message["order"]), str(message["identity"]), str(message["name"]), int(message["slots"]), gpus)
        with self._changed:
            self._met.append(_Met(task, made))
            self._changed.notify_all()

    def _answer_all(self) -> None:
        for launcher, _ in connection.accepted(self._asked):
            with launcher, contextlib.suppress(OSError, KeyError, TypeError, ValueError):
                launcher.settimeout(_ASK_SECONDS)
                if sockets.is_ours(launcher):
                    self._answer(launcher)

    def _answer(self, launcher: socket.socket) -> None:
        asked, hosts = hear(launcher), self.hosts()
        if asked["kind"] == "hosts":
            say(launcher, "hosts", hosts=[[host.name, host.slots] for host in hosts])
            return
        for host in [each for each in hosts if each.name == asked["host"]]:
            if waiting := [met for met in self._met if met.task in host.tasks and not met.leads]:
                first = min(waiting, key=lambda met: met.task.order)
                first.leads = True
                say(first.connection, "lead", gpus=host.gpus)
                socket.send_fds(launcher, [b"1"], [first.connection.fileno()])
