"""Hands out the key of a job that another launcher started on one host: rank 0 sends it over an abstract Unix socket.

    rank 0                                         every other rank
    bind, listen on "<meeting name>-key"           connect, again and again until rank 0 is there
    accept            ---------------------------
    check that the peer is this user (SO_PEERCRED) check that the peer is this user (SO_PEERCRED)
                      <-- "rank": rank, size
                      when all have come: --> "key": key, store name
                      at its deadline:    --> "late": the missing ranks

The channel is as secret as the user's account: the kernel vouches for the user id of both ends, so a process of another
user that took the name first is refused. The store's name is random, so nobody can take it beforehand.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from farandole._api.errors import DeadlineError
from farandole._start import sockets
from farandole._start.connection import FAILURES, hear, say
from farandole._start.environment import OURS
from farandole._start.frames import Message

KEY_BYTES = 32
ANSWER_S = 5.0  # the others wait this much longer than rank 0, which then names the missing ranks
_WARN_AFTER_S = 10.0


def exchange(rendezvous: str, rank: int, size: int, timeout_s: float) -> tuple[str, bytes]:
    """Agree with the other ranks on (store name, job key). `rendezvous` is a "unix:" name that all ranks have derived.

    Blocks until every rank has come. Raises DeadlineError, on all ranks that have come, if one does not, and
    PermissionError if another user has the name.
    """
    address = "\0" + rendezvous.removeprefix("unix:") + "-key"
    return _serve(address, size, timeout_s) if rank == 0 else _ask(address, rank, size, timeout_s)


def store_name() -> str:
    """Return a new store name on this host, which nobody can guess."""
    return f"unix:farandole-{os.getuid()}-{os.urandom(12).hex()}"


def read_key(path: str) -> bytes:
    """Return the job's key from a file. Raises ValueError if the file does not contain a key."""
    sentence = f"FARANDOLE_KEY_FILE={path!r} cannot be right: {{}}. {OURS} sets this variable"
    try:
        key = Path(path).read_bytes()
        shared = not path.startswith("/proc/") and Path(path).stat().st_mode & 0o077
    except OSError as error:
        raise ValueError(sentence.format(f"it cannot be read ({error.strerror})")) from error
    if len(key) != KEY_BYTES:
        raise ValueError(sentence.format(f"the file holds {len(key)} bytes, not {KEY_BYTES}"))
    if shared:
        raise ValueError(sentence.format("other users may open the file; chmod 600 it"))
    return key


def _serve(address: str, size: int, timeout_s: float) -> tuple[str, bytes]:
    key, store = os.urandom(KEY_BYTES), store_name()
    deadline, reminder = time.monotonic() + timeout_s, Reminder()
    come: dict[int, socket.socket] = {}
    with _listener(address, size) as listener:
        try:
            while len(come) < size - 1:
                reminder.look(deadline, lambda: f"rank 0 waits in init() for rank(s) {listed(_missing(come, size))}")
                with suppress(TimeoutError):
                    _admit(listener.accept()[0], size, come)
            _tell(come, "key", key=key.hex(), store=store)
        except DeadlineError as error:
            _tell(come, "late", why=str(error))
            raise
        finally:
            for connection in come.values():
                connection.close()
    return store, key


def _listener(address: str, size: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise OSError(
            error.errno,
            f"rank 0 cannot take the socket name @{address[1:]} ({error.strerror}): another job of the same "
            "identity runs on this host; set FARANDOLE_JOB_ID to something different for each job",
        ) from error
    listener.listen(size)
    listener.settimeout(1.0)
    return listener


def _admit(connection: socket.socket, size: int, come: dict[int, socket.socket]) -> None:
    """Learn which rank has connected. Strangers are dropped, and the job goes on waiting."""
    connection.settimeout(10.0)
    hello: Message = {}
    if sockets.is_ours(connection):
        with suppress(*FAILURES):  # it died half-way; the next one is served
            hello = hear(connection)
    rank: Any = hello.get("rank")
    if hello.get("size") == size and rank in range(1, size) and rank not in come:
        come[rank] = connection
    else:
        connection.close()


def _tell(come: dict[int, socket.socket], kind: str, **content: Any) -> None:
    for connection in come.values():
        with suppress(OSError):  # the core will find out who died
            say(connection, kind, **content)


def _missing(come: dict[int, socket.socket], size: int) -> set[int]:
    """Return the ranks that have not come, or have left since."""
    return {rank for rank in range(1, size) if rank not in come or is_readable(come[rank], 0)}


def is_readable(connection: socket.socket, timeout_s: float) -> bool:
    """Wait up to `timeout_s`, and return whether bytes or the end of the connection have come."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(1000 * timeout_s))


def _ask(address: str, rank: int, size: int, timeout_s: float) -> tuple[str, bytes]:
    deadline, reminder = time.monotonic() + timeout_s, Reminder()
    while True:
        reminder.look(deadline, lambda: f"rank {rank} waits in init() for rank 0")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            answer = _answer(connection, address, rank, size, timeout_s, reminder)
        if answer.get("kind") == "key":
            return str(answer["store"]), bytes.fromhex(answer["key"])
        if answer.get("kind") == "late":
            raise DeadlineError(f"rank {rank} leaves init(): {answer['why']}")
        time.sleep(0.02)


def _answer(
    connection: socket.socket, address: str, rank: int, size: int, timeout_s: float, reminder: Reminder
) -> Message:
    """Return rank 0's answer, or nothing if rank 0 is not there yet or does not know this rank."""
    connection.settimeout(10.0)
    try:
        connection.connect(address)
        owner = sockets.peer_uid(connection)
        if owner != os.getuid():
            raise PermissionError(f"the socket @{address[1:]} belongs to user id {owner}, not to ours")
        say(connection, "rank", rank=rank, size=size)
        deadline = time.monotonic() + timeout_s + ANSWER_S  # later than the deadline of rank 0, which is already there
        while not is_readable(connection, 0.5):
            reminder.look(deadline, lambda: f"rank {rank} waits in init() for rank 0 and those that it waits for")
        return hear(connection)
    except PermissionError:
        raise
    except FAILURES:
        return {}


def listed(ranks: set[int]) -> str:
    """Return the ranks as text for messages."""
    return ", ".join(map(str, sorted(ranks)))


def through_library(
    rank: int, size: int, launcher: str, timeout_s: float, call: Callable[[bytes], list[bytes]]
) -> Callable[[bytes], list[bytes]]:
    """Exchange bytes by a library's call, which cannot be interrupted and does not tell which rank it waits for.

    Raises DeadlineError if ranks have not come `timeout_s` from now.
    """
    deadline, reminder = time.monotonic() + timeout_s, Reminder()
    text = f"rank {rank} waits in init() for a rank that {launcher} started: the one of {size} without this message"
    return lambda mine: _in_thread(lambda: call(mine), deadline, reminder, text)


def _in_thread(work: Callable[[], list[bytes]], deadline: float, reminder: Reminder, text: str) -> list[bytes]:
    """Run a call in a thread and return its result. On timeout or Ctrl-C, the thread is abandoned."""
    result: list[list[bytes] | BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=run, name="farandole-exchange", daemon=True)
    thread.start()
    while thread.is_alive():
        reminder.look(deadline, lambda: text)
        thread.join(0.2)
    if isinstance(result[0], BaseException):
        raise result[0]
    return result[0]


class Reminder:
    """Warns once about a long wait, and raises at the deadline."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._due = self._began + _WARN_AFTER_S

    def look(self, deadline: float, text: Callable[[], str]) -> None:
        now = time.monotonic()
        if now > deadline:
            raise DeadlineError(
                f"{text()}, which did not call it within {now - self._began:.0f} s: look at their output. "
                "FARANDOLE_START_TIMEOUT is how long init waits"
            )
        if now > self._due:
            self._due = deadline
            from farandole._start.log import logger  # imports logging, which `import farandole` avoids

            logger.warning(text())
