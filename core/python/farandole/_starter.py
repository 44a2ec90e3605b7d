"""How the ranks of a foreign starter on one host get a common secret: rank 0 hands it out over an abstract Unix socket.

    rank 0                                         every other rank
    bind, listen on "<meeting name>-key"           connect, again and again until rank 0 is there
    accept            ---------------------------
    is the peer this user? (SO_PEERCRED)           is the peer this user? (SO_PEERCRED)
                      <-- rank, size (8 bytes)
                      --> key (32 bytes), store name

The channel is as secret as the user's account: the kernel vouches for the user id on both sides, so a process of
another user that took the name first is refused. The store's name is random, so it cannot be taken beforehand.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from farandole._environment import OURS
from farandole._errors import DeadlineError

KEY_BYTES = 32
_HELLO = struct.Struct("!II")  # rank, size
_WARN_AFTER_S = 10.0


def exchange(meeting: str, rank: int, size: int, timeout_s: float) -> tuple[str, bytes]:
    """Agree with the other ranks on (store name, job key); `meeting` is the "unix:" name all ranks derived alike.

    Blocks until every rank came. Raises DeadlineError if one does not, PermissionError if another user holds the name.
    """
    address = "\0" + meeting.removeprefix("unix:") + "-key"
    deadline = time.monotonic() + timeout_s
    return _serve(address, size, deadline) if rank == 0 else _ask(address, rank, size, deadline)


def store_name() -> str:
    """A new one on this host, which nobody can take beforehand."""
    return f"unix:farandole-{os.getuid()}-{secrets.token_hex(12)}"


def read_key(path: str) -> bytes:
    """The job's key in FARANDOLE_KEY_FILE. Raises ValueError for a file that is none."""
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


def _serve(address: str, size: int, deadline: float) -> tuple[str, bytes]:
    key, store = secrets.token_bytes(KEY_BYTES), store_name()
    waiting = set(range(1, size))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(address)
        except OSError as error:
            raise OSError(
                error.errno,
                f"rank 0 cannot take the socket name @{address[1:]} ({error.strerror}): another job of the same "
                "identity runs on this host; set FARANDOLE_JOB_ID to something different for each job",
            ) from error
        listener.listen(size)
        reminder = Reminder()
        while waiting:
            listener.settimeout(1.0)
            reminder.look(deadline, lambda: f"rank 0 waits in init() for rank(s) {listed(waiting)}")
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                waiting.discard(_answer(connection, size, waiting, key + store.encode()))
    return store, key


def _answer(connection: socket.socket, size: int, waiting: set[int], secret: bytes) -> int:
    """Serve one peer; returns its rank, or -1 for one that is none of ours (it is dropped, the job goes on waiting)."""
    connection.settimeout(10.0)
    if _peer_uid(connection) != os.getuid():
        return -1
    try:
        hello = _receive(connection, _HELLO.size)
        if len(hello) < _HELLO.size:
            return -1
        rank, its_size = _HELLO.unpack(hello)
        if its_size != size or rank not in waiting:
            return -1
        connection.sendall(secret)
    except OSError:  # it died half way; whoever comes next is served
        return -1
    return int(rank)


def _ask(address: str, rank: int, size: int, deadline: float) -> tuple[str, bytes]:
    reminder = Reminder()
    while True:
        reminder.look(deadline, lambda: f"rank {rank} waits in init() for rank 0")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(10.0)
            try:
                connection.connect(address)
                owner = _peer_uid(connection)
                if owner != os.getuid():
                    raise PermissionError(f"the socket @{address[1:]} belongs to user id {owner}, not to ours")
                connection.sendall(_HELLO.pack(rank, size))
                secret = _receive(connection, 4096)
            except PermissionError:
                raise
            except OSError:  # not there yet
                secret = b""
        if len(secret) > KEY_BYTES:
            return secret[KEY_BYTES:].decode(), secret[:KEY_BYTES]
        time.sleep(0.02)


def _receive(connection: socket.socket, limit: int) -> bytes:
    """Up to `limit` bytes; fewer only where the peer closed."""
    received = b""
    while len(received) < limit:
        piece = connection.recv(limit - len(received))
        if not piece:
            break
        received += piece
    return received


def _peer_uid(connection: socket.socket) -> int:
    credentials = struct.Struct("3i")  # struct ucred: pid, uid, gid
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    return int(credentials.unpack(raw)[1])


def listed(ranks: set[int]) -> str:
    """The ranks as messages have them."""
    return ", ".join(map(str, sorted(ranks)))


class Reminder:
    """Says once what is waited for, and raises at the deadline."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._due = self._began + _WARN_AFTER_S

    def look(self, deadline: float, text: Callable[[], str]) -> None:
        now = time.monotonic()
        if now > deadline:
            raise DeadlineError(
                f"{text()}, which did not come in time ({now - self._began:.0f} s): look for their output. "
                "FARANDOLE_START_TIMEOUT is how long init waits"
            )
        if now > self._due:
            self._due = deadline
            print(f"farandole: {text()}", file=sys.stderr, flush=True)
