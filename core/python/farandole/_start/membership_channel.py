"""Messages between the launcher and the ranks of an elastic job about its membership, as JSON over a Unix socket.

    rank      -> launcher   hello: which rank this is           begin, pause: it enters or leaves `elastic.run`
                            report: its epoch has ended
    launcher  -> ranks      epoch: the next membership          end: why the job cannot go on

The socket is of kind SOCK_SEQPACKET, which keeps messages apart, so each packet is the content of a frame (frames.py).
Its name is abstract and cannot be guessed. Each end asks the kernel for the user of the other.
"""

from __future__ import annotations

import json
import socket

from farandole._start import frames, sockets

MOST_BYTES = 1 << 20
Message = frames.Message


def listen(name: str) -> socket.socket:
    """Open the launcher's end, at an abstract name. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind("\0" + name)
    listener.listen(socket.SOMAXCONN)
    return listener


def connect(name: str) -> socket.socket:
    """Open a rank's end. Raises OSError, or PermissionError if another user listens there."""
    return sockets.connect_to_ours(name, socket.SOCK_SEQPACKET)


def send(connection: socket.socket, message: Message) -> None:
    """Send a message. Raises OSError if the other end is gone."""
    connection.send(json.dumps(message).encode())


def receive(connection: socket.socket) -> Message | None:
    """Return the next message, or None at the end of the connection. Raises ValueError for anything else."""
    try:
        data = connection.recv(MOST_BYTES)
    except ConnectionError:
        return None
    if not data:
        return None
    return frames.content_of(data)
