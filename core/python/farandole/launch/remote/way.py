"""The launcher's way to an agent that runs in a task of an engine: carries bytes between the agent and our pipes.

    python -I -S way.py HUB HOST

It is run by its path and imports nothing of farandole, so that it is there at once. The caller's hub, at this abstract
Unix socket, hands us the connection to the agent of that host.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import threading
from typing import NoReturn

_CHUNK = 1 << 16
_ASK_SECONDS = 10.0


def main() -> NoReturn:
    """Carry until the agent ends the connection, and exit: by itself that is no success."""
    name, host = sys.argv[1:3]
    hub = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    hub.settimeout(_ASK_SECONDS)
    try:
        hub.connect(f"\0{name}")
        if not _is_ours(hub):
            sys.exit("the hub belongs to another user")
        hub.sendall(host.encode())
        _, descriptors, _, _ = socket.recv_fds(hub, 1, 1)
    except OSError as error:
        sys.exit(f"the hub of the driver does not answer ({error})")
    if not descriptors:
        sys.exit("its task has gone")
    connection = socket.socket(fileno=descriptors[0])  # and `hub` stays open as long as we live
    threading.Thread(target=_carry_there, args=(connection,), daemon=True).start()
    _carry_back(connection)
    print("its task has ended, or was lost", file=sys.stderr, flush=True)
    os._exit(1)  # the other thread may sit in a read


def _is_ours(connection: socket.socket) -> bool:
    credentials = struct.Struct("3i")  # struct ucred: pid, uid, gid
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    return int(credentials.unpack(raw)[1]) == os.getuid()


def _carry_there(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, _CHUNK):
            connection.sendall(data)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)


def _carry_back(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := connection.recv(_CHUNK):
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]


if __name__ == "__main__":
    main()
