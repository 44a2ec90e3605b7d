"""The programs that the launcher starts on the driver's host, as scripts: they import the standard library only.

    python _way.py NAME reach [options of ssh] -- HOST COMMAND     what ssh is elsewhere; the agent's channels are ours
    python _way.py NAME hosts                                      prints `host:slots` a line

NAME is the abstract socket of the driver, which knows the actors. See _wire.py for what travels.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import threading
from typing import Any

CANNOT = 255  # as ssh ends where it has no way
_SECONDS = 10.0
_FRAME = struct.Struct("!BI")
_STDOUT, _STDERR, _CODE = 1, 2, 3
_CHUNK = 1 << 16


def ask(name: str, question: dict[str, Any]) -> dict[str, Any]:
    """The driver's answer. Raises OSError where it is gone."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(_SECONDS)
        channel.connect(f"\0{name}")
        channel.sendall(json.dumps(question).encode() + b"\n")
        with channel.makefile("rb") as lines:
            found: dict[str, Any] = json.loads(lines.readline() or b'{"error": "the driver has ended"}')
            return found


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:
            raise ConnectionError
        data += piece
    return bytes(data)


def _send_stdin(channel: socket.socket) -> None:
    try:
        while data := os.read(0, _CHUNK):
            channel.sendall(data)
        channel.shutdown(socket.SHUT_WR)
    except OSError:  # the other side has ended, which the main thread sees
        return


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _pump(channel: socket.socket) -> int:
    """Show what the agent writes until it ends; its exit code."""
    threading.Thread(target=_send_stdin, args=(channel,), daemon=True).start()
    while True:
        kind, size = _FRAME.unpack(_exactly(channel, _FRAME.size))
        data = _exactly(channel, size)
        if kind == _CODE:
            return int(data)
        _write(1 if kind == _STDOUT else 2, data)


def _reach(name: str, words: list[str]) -> int:
    import hashlib
    import hmac

    host, command = words[words.index("--") + 1 :]
    try:
        answer = ask(name, {"host": host})
    except OSError as error:
        answer = {"error": f"the driver does not answer: {error}"}
    if "error" in answer:
        print(answer["error"], file=sys.stderr)
        return CANNOT
    try:
        with socket.create_connection((answer["address"], answer["port"]), _SECONDS) as channel:
            proof = hmac.new(bytes.fromhex(answer["token"]), _exactly(channel, 32), hashlib.sha256).digest()
            text = json.dumps({"command": command}).encode()
            channel.sendall(proof + struct.pack("!I", len(text)) + text)
            channel.settimeout(None)
            return _pump(channel)
    except OSError as error:
        with contextlib.suppress(OSError):  # the driver hears of it sooner than from Ray
            ask(name, {"lost": host, "port": answer["port"]})
        what = "has ended" if isinstance(error, ConnectionError) else f"does not answer: {error}"
        print(f"Ray's actor on {host} {what}", file=sys.stderr)
        return CANNOT


def _hosts(name: str) -> int:
    try:
        answer = ask(name, {})
    except OSError as error:
        print(f"the driver does not answer: {error}", file=sys.stderr)
        return 1
    for host, slots in answer["hosts"].items():
        print(f"{host}:{slots}")
    return 0


def main() -> int:
    """Run what the arguments say; the exit code."""
    name, what, *words = sys.argv[1:]
    return _reach(name, words) if what == "reach" else _hosts(name)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread may sit in read(0)
