"""The program that leads a launcher to the agent of a host that has lost its own launcher.

    ssh HOST python -m farandole.launch.remote.reconnect NAME BOOT

NAME is the abstract Unix socket of the agent, BOOT the machine's boot ID when the job was started. The first line of
stdin is the job's key, in hexadecimal. All that follows goes to the agent once both have proved that they have the key,
and the agent's answers go to stdout.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from pathlib import Path
from typing import NoReturn

from farandole._start import sockets
from farandole._start.proof import Proof, ProofError

NO_AGENT = 69  # exit code
_CHUNK = 1 << 16
_SECONDS = 10.0  # for the proof


def main() -> NoReturn:
    """Connect, pass on until either side ends, and exit."""
    key = _first_line()
    try:
        connection, rest = _connect(sys.argv[1], key)
    except (ConnectionRefusedError, EOFError):
        _leave(_why_none(sys.argv[2]))
    except PermissionError:
        _leave("another user listens in the place of its agent")
    except ProofError:
        _leave("its agent does not have the key of this file")
    except OSError as error:
        _leave(f"its agent cannot be reached: {error.strerror or error}")
    _write(1, rest)
    threading.Thread(target=_pass_commands, args=(connection,), daemon=True).start()
    with contextlib.suppress(OSError):
        while data := connection.recv(_CHUNK):
            _write(1, data)
    os._exit(0)


def _why_none(boot_id: str) -> str:
    if Path("/proc/sys/kernel/random/boot_id").read_text().strip() != boot_id:
        return "it was started again since, so its agent is gone"
    return "no agent of this job is there any more"


def _leave(why: str) -> NoReturn:
    print(why, file=sys.stderr, flush=True)
    os._exit(NO_AGENT)


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            os._exit(0)  # the launcher is gone
        line += byte
    return bytes.fromhex(line.decode())


def _connect(name: str, key: bytes) -> tuple[socket.socket, bytes]:
    """The connection, and what the agent has said after the proof."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_SECONDS)
    connection.connect("\0" + name)
    if not sockets.is_ours(connection):
        raise PermissionError
    proof, rest = Proof(key, is_listener=False), b""
    while not proof.is_done:
        data = connection.recv(_CHUNK)
        if not data and proof.has_proved:
            raise ProofError
        if not data:
            raise EOFError
        answer, rest = proof.feed(data)
        connection.sendall(answer)
    connection.settimeout(None)
    return connection, rest


def _pass_commands(connection: socket.socket) -> None:
    """From stdin to the agent. A thread of its own, so that a launcher that does not read is still heard."""
    with contextlib.suppress(OSError):
        while data := os.read(0, _CHUNK):
            connection.sendall(data)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)  # the agent closes its end once it has said all


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    main()
