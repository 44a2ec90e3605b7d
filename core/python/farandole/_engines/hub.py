"""Where the tasks of an engine meet the driver, and where the launcher's ways to agents find them.

A task connects by TCP, proves the hub's key and says what it is. Once the caller has arranged the tasks, each hears
whether it has the agent of its host: then the launcher gets the connection, which asks for the host by its name at a
Unix socket of this user. Other tasks wait until the hub closes.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from farandole._engines import places
from farandole._engines.copies import Shelf
from farandole._engines.places import Host, Task
from farandole._start import environment, sockets
from farandole._start.connection import FAILURES, hear, prove, say

_MEET_SECONDS = 20.0  # for the proof and the message of one task
_ASK_SECONDS = 5.0
_POLL_SECONDS = 0.1


@dataclass
class _Met:
    """A task that nobody has taken, with its connection."""

    task: Task
    connection: socket.socket
    host: str = ""  # for which it has the agent


@dataclass
class Hub:
    """Meets tasks at `address`. Use it as a context: leaving it ends all connections that nobody has taken.

    `bind`: another address to listen at, where the driver is behind a translation of addresses.
    `shelf`: takes the commits that ranks keep outside.
    """

    address: str
    bind: str = ""
    port: int = 0
    shelf: Shelf | None = None
    key: bytes = field(default_factory=lambda: os.urandom(32), repr=False)
    _met: list[_Met] = field(default_factory=list, repr=False)
    _givers: list[socket.socket] = field(default_factory=list, repr=False)  # ranks that give commits

    def __enter__(self) -> Hub:
        self._silence_s = environment.silence_timeout_s()
        where = self.bind or self.address
        family = socket.AF_INET6 if ":" in where else socket.AF_INET
        self._listener = socket.create_server((where, self.port), family=family, backlog=1024)
        self.port = self._listener.getsockname()[1]
        self.name = f"farandole-hub-{os.urandom(16).hex()}"
        self._asked = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._asked.bind(f"\0{self.name}")
        self._asked.listen(1024)
        self._changed = threading.Condition()
        self._closed = False
        for listener, serve in ((self._listener, self._meet), (self._asked, self._answer)):
            threading.Thread(target=self._accept, args=(listener, serve), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            for met in self._met:
                _close(met.connection)
            for giver in self._givers:
                _close(giver)
            self._met.clear()
            self._givers.clear()
        _close(self._listener)
        _close(self._asked)

    @property
    def endpoint(self) -> tuple[str, int]:
        """Where tasks connect to."""
        return self.address, self.port

    def count(self) -> int:
        """How many tasks are here; those that have gone before they were arranged are not."""
        with self._changed:
            self._met[:] = [met for met in self._met if met.host or not _is_gone(met)]
            return len(self._met)

    def wait(self, tasks: int, seconds: float) -> bool:
        """Wait for so many tasks. Returns whether they are all here."""
        deadline = time.monotonic() + seconds
        while self.count() < tasks:
            with self._changed:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, _POLL_SECONDS))
        return True

    def arrange(self) -> list[Host]:
        """Tell every task its part. Returns the hosts, in the order of their ranks."""
        with self._changed:
            hosts = places.by_host(met.task for met in self._met)
            by_order = {met.task.order: met for met in self._met}
            for host in hosts:
                first, *others = [by_order[task.order] for task in host.tasks]
                self._tell(first, leads=True, gpus=host.gpus)
                first.host = host.name
                for other in others:
                    self._tell(other, leads=False)
                    other.host = f"{host.name}#{other.task.order}"  # nobody asks for it
            return hosts

    # Threads

    def _accept(self, listener: socket.socket, serve: Any) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(_POLL_SECONDS)  # no descriptor is left, for instance
                continue
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    def _meet(self, connection: socket.socket) -> None:
        try:
            sockets.notice_lost_hosts(connection, self._silence_s)
            connection.settimeout(_MEET_SECONDS)
            prove(connection, self.key, is_listener=True)
            said = hear(connection)
            connection.settimeout(None)
            if said["kind"] == "keeps commits" and self.shelf is not None:
                self._take_commits(connection, self.shelf)
                return
            gpus = tuple(map(str, said["gpus"]))
            task = Task(int(said["order"]), str(said["identity"]), str(said["name"]), int(said["slots"]), gpus)
        except (*FAILURES, KeyError, TypeError, ValueError):
            _close(connection)  # a stranger, or a task that has gone
            return
        with self._changed:
            if self._closed:
                _close(connection)
                return
            self._met.append(_Met(task, connection))
            self._changed.notify_all()

    def _take_commits(self, connection: socket.socket, shelf: Shelf) -> None:
        with self._changed:
            if self._closed:
                _close(connection)
                return
            self._givers.append(connection)
        try:
            shelf.serve(connection)
        finally:
            with self._changed:
                if connection in self._givers:
                    self._givers.remove(connection)

    @staticmethod
    def _tell(met: _Met, **content: Any) -> None:
        with contextlib.suppress(OSError):  # the launcher finds that it has gone
            say(met.connection, "part", **content)

    def _answer(self, launcher: socket.socket) -> None:
        """The launcher asks for a host."""
        with launcher, contextlib.suppress(OSError):
            launcher.settimeout(_ASK_SECONDS)
            if sockets.is_ours(launcher):
                self._hand_over(launcher, launcher.recv(4096).decode())

    def _hand_over(self, launcher: socket.socket, host: str) -> None:
        with self._changed:
            met = next((each for each in self._met if each.host == host), None)
            if met is not None:
                socket.send_fds(launcher, [b"1"], [met.connection.fileno()])
                met.connection.close()
                self._met.remove(met)


def _is_gone(met: _Met) -> bool:
    """Returns whether the other end of a connection that nobody has taken is closed. It says nothing before that."""
    poll = select.poll()
    poll.register(met.connection, select.POLLIN | select.POLLRDHUP)
    return any(events & (select.POLLRDHUP | select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits there
    connection.close()
