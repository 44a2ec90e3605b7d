"""Those who do not belong to a job, and knock at its doors: what they say, and what they hear."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
# A TLS 1.2 client hello: record header, handshake header, version, random, no session, one cipher, no compression.
_BODY = b"\x03\x03" + bytes(range(32)) + b"\x00" + b"\x00\x02\xc0\x2f" + b"\x01\x00"
TLS = b"\x16\x03\x01" + struct.pack("!H", len(_BODY) + 4) + b"\x01\x00" + struct.pack("!H", len(_BODY)) + _BODY

Door = str  # "tcp:<host>:<port>" or "unix:<abstract name>"


def connect(door: Door) -> socket.socket | None:
    """A connection, or None where nobody listens."""
    kind, _, place = door.partition(":")
    host, _, port = place.rpartition(":")
    made = socket.socket(socket.AF_INET if kind == "tcp" else socket.AF_UNIX)
    made.settimeout(1.0)
    try:
        made.connect((host, int(port)) if kind == "tcp" else "\0" + place)
    except OSError:
        made.close()
        return None
    return made


def doors_of(pids: Iterable[int]) -> list[Door]:
    """Where these processes listen now."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    inodes.add(os.readlink(entry).removeprefix("socket:[").rstrip("]"))
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            found.append(f"tcp:127.0.0.1:{int(fields[1].split(':')[1], 16)}")
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) == 8 and int(fields[3], 16) & 0x10000 and fields[6] in inodes:
            found.append("unix:" + fields[7].removeprefix("@"))
    return found


# ---- what a stranger does with a fresh connection


def _says(words: bytes) -> Callable[[socket.socket], None]:
    return lambda made: made.sendall(words)


def _resets(made: socket.socket) -> None:
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    made.close()


def _drips(made: socket.socket) -> None:
    for byte in b"GET / HTTP":
        made.sendall(bytes([byte]))
        time.sleep(0.005)


_dice = random.Random(4711)
MANNERS: dict[str, Callable[[socket.socket], None]] = {
    "http": _says(HTTP),
    "tls": _says(TLS),
    "random": _says(_dice.randbytes(5000)),
    "one byte": _says(b"F"),
    "long": _says(b"\xff" * 200_000),
    "beginning of a hello": _says(b"FRDL\1\0\0"),
    "says nothing": _says(b""),
    "closes its half": lambda made: made.shutdown(socket.SHUT_WR),
    "resets": _resets,
    "drips": _drips,
}


class Crowd:
    """Strangers that stay as long as the `with` block, and remember what they were told."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []
        self._lock = threading.Lock()
        self.visits = 0

    def knock(self, door: Door, manner: str) -> None:
        made = connect(door)
        if made is None:
            return
        with contextlib.suppress(OSError):  # shown out while it speaks
            MANNERS[manner](made)
        with self._lock:
            self.visits += 1
            if made.fileno() >= 0:
                self._held.append(made)

    def answers(self) -> list[bytes]:
        """The bytes that came back."""
        heard = []
        for made in self._held:
            made.setblocking(False)
            with contextlib.suppress(OSError):
                if words := made.recv(4096):
                    heard.append(words)
        return heard

    def leave(self) -> None:
        for made in self._held:
            made.close()
        self._held = []


@contextlib.contextmanager
def crowd() -> Iterator[Crowd]:
    """A crowd that leaves at the end of the block."""
    strangers = Crowd()
    try:
        yield strangers
    finally:
        strangers.leave()
