"""Messages between a launcher and its ranks about the membership of an elastic job: JSON over a Unix socket.

    rank      -> launcher   hello: which rank this is           begin, pause: it is inside, outside of `elastic.run`
                            report: its epoch has ended for it
    launcher  -> ranks      epoch: the next membership          end: the job cannot go on, and why

A socket of kind SOCK_SEQPACKET keeps messages apart, so a packet is the content of a frame (frames.py). Its name is
abstract and cannot be guessed; each end asks the kernel whose process the other one is.
"""

from __future__ import annotations

import json
import socket

from farandole._start import frames, sockets

MOST_BYTES = 1 << 20
Message = frames.Message


def listen(name: str) -> socket.socket:
    """The launcher's end, at the abstract name. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind("\0" + name)
    listener.listen(socket.SOMAXCONN)
    return listener


def connect(name: str) -> socket.socket:
    """A rank's end. Raises OSError; PermissionError where another user listens there."""
    return sockets.connect_to_ours(name, socket.SOCK_SEQPACKET)


def send(connection: socket.socket, message: Message) -> None:
    """Raises OSError where the other end is gone."""
    connection.send(json.dumps(message).encode())


def receive(connection: socket.socket) -> Message | None:
    """The next message; None at the end of the connection. Raises ValueError for what is no message."""
    try:
        data = connection.recv(MOST_BYTES)
    except ConnectionError:
        return None
    if not data:
        return None
    return frames.content_of(data)
