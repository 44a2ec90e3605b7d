"""Where the tasks of a cluster meet the driver, and where the launcher asks for them.

A task connects by TCP, proves the server's key and says what it is. The launcher asks at a Unix socket of this user
which hosts there are, and for the agent of one: then the first task of that host hears that it leads, and the launcher
gets its connection. The other tasks wait until the server closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import threading
import time
from dataclasses import dataclass, field

from farandole._cluster import hosts as cluster_hosts
from farandole._cluster.commit_store import CommitTarget, DriverStore
from farandole._cluster.hosts import Host, Task
from farandole._cluster.task import Invitation
from farandole._start import connection, environment, sockets
from farandole._start.acceptor import Acceptor, hear, say
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
        self._changed, is_ready = threading.Condition(), threading.Event()
        acceptor = Acceptor(self.key, environment.silence_timeout_s(), self._welcome)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(acceptor, is_ready)), daemon=True)
        self._thread.start()
        is_ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()
        for each in [*(met.connection for met in self._met), *self._givers]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits there
            each.close()
        self._met.clear()

    @property
    def endpoint(self) -> tuple[str, int]:
        """Where tasks connect to."""
        return self.address, self.port

    def invite(self, commits: CommitTarget | None = None) -> Invitation:
        """What a task needs; see `Invitation`."""
        return Invitation(self.endpoint, self.key, commits)

    def tasks(self) -> list[Task]:
        """The tasks that are here, also those with agents."""
        with self._changed:
            for met in [each for each in self._met if _is_gone(each.connection)]:
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

    # The thread

    async def _serve(self, acceptor: Acceptor, is_ready: threading.Event) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        is_ready.set()
        with self._listener, self._asked:
            serving = [asyncio.ensure_future(each) for each in (acceptor.serve(self._listener), self._answer_all())]
            await self._end.wait()
            for each in serving:
                each.cancel()
            await asyncio.wait(serving)

    async def _welcome(self, made: socket.socket, said: Message) -> None:
        if said["kind"] == "keeps commits" and self.store is not None:
            made.setblocking(True)
            threading.Thread(target=self._take_commits, args=(made, self.store), daemon=True).start()
            return
        gpus = tuple(map(str, said["gpus"]))
        task = Task(int(said["order"]), str(said["identity"]), str(said["name"]), int(said["slots"]), gpus)
        with self._changed:
            self._met.append(_Met(task, made))
            self._changed.notify_all()

    def _take_commits(self, giver: socket.socket, store: DriverStore) -> None:
        """In a thread of its own, as copies are large."""
        self._givers.append(giver)
        with giver, contextlib.suppress(*connection.FAILURES, KeyError, TypeError, ValueError):
            store.serve(giver)
        self._givers.remove(giver)

    async def _answer_all(self) -> None:
        self._asked.setblocking(False)
        while True:
            try:
                launcher, _ = await asyncio.get_running_loop().sock_accept(self._asked)
            except OSError:  # no descriptor is left, for instance
                await asyncio.sleep(_POLL_SECONDS)
                continue
            with launcher, contextlib.suppress(OSError, asyncio.TimeoutError, KeyError, TypeError, ValueError):
                if sockets.is_ours(launcher):
                    await asyncio.wait_for(self._answer(launcher), _ASK_SECONDS)

    async def _answer(self, launcher: socket.socket) -> None:
        asked, hosts = await hear(launcher), self.hosts()
        if asked["kind"] == "hosts":
            await say(launcher, "hosts", hosts=[[host.name, host.slots] for host in hosts])
            return
        for host in [each for each in hosts if each.name == asked["host"]]:
            if waiting := [met for met in self._met if met.task in host.tasks and not met.leads]:
                first = min(waiting, key=lambda met: met.task.order)
                first.leads = True
                await say(first.connection, "lead", gpus=host.gpus)
                socket.send_fds(launcher, [b"1"], [first.connection.fileno()])


def _is_gone(connected: socket.socket) -> bool:
    """Returns whether the other end is closed. Reads nothing: the launcher may have a copy of the connection."""
    poll = select.poll()
    poll.register(connected, select.POLLRDHUP)
    return bool(poll.poll(0))
