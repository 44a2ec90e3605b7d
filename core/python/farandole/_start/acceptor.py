"""Takes in processes of a job that connect to this one: each proves the key and says what it is. On asyncio.

It has the functions of connection.py for asyncio, too.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from farandole._start import sockets
from farandole._start.frames import HEAD_BYTES, Message, content_of, message, size_of
from farandole._start.proof import Proof, ProofError

PROOF_SECONDS = 5.0  # from the first packet to the end of the proof
_MOST_CALLERS = 512  # that have not proved themselves
_AGAIN_SECONDS = 0.1  # after a connection that could not be accepted
_CHUNK = 4096


@dataclass
class Acceptor:
    """Accepts connections until it is cancelled.

    `welcome` gets each connection whose other end has proved the key, with its first message. The connection is its
    own, unless it raises OSError, ValueError, or what else comes of a message without sense.
    """

    key: bytes
    silence_s: float
    welcome: Callable[[socket.socket, Message], Awaitable[None]]
    strangers: set[str] = field(default_factory=set)  # addresses that came with another key

    async def serve(self, listener: socket.socket) -> None:
        """Accept at this listener, which it makes non-blocking."""
        listener.setblocking(False)
        room, tasks = asyncio.Semaphore(_MOST_CALLERS), set()
        while True:
            await room.acquire()
            try:
                made, peer = await asyncio.get_running_loop().sock_accept(listener)
            except OSError:  # no descriptor is left, for instance
                room.release()
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            task = asyncio.ensure_future(self._receive(made, str(peer[0]).partition("%")[0], room))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _receive(self, made: socket.socket, address: str, room: asyncio.Semaphore) -> None:
        try:
            try:
                sockets.notice_lost_hosts(made, self.silence_s)
                await asyncio.wait_for(prove(made, self.key, is_listener=True), PROOF_SECONDS)
            finally:
                room.release()
            await self.welcome(made, await hear(made))
        except ProofError:
            self.strangers.add(address)
            made.close()
        except (asyncio.TimeoutError, OSError, KeyError, TypeError, ValueError):
            made.close()


async def prove(connection: socket.socket, key: bytes, is_listener: bool) -> None:
    """See connection.py."""
    loop, proof = asyncio.get_running_loop(), Proof(key, is_listener)
    await loop.sock_sendall(connection, proof.first())
    while not proof.is_done:
        await loop.sock_sendall(connection, proof.feed(await loop.sock_recv(connection, _CHUNK)))


async def say(connection: socket.socket, kind: str, **content: Any) -> None:
    """See connection.py."""
    await asyncio.get_running_loop().sock_sendall(connection, message(kind, **content))


async def hear(connection: socket.socket) -> Message:
    """See connection.py."""
    size = size_of(await _exactly(connection, HEAD_BYTES))
    return content_of(await _exactly(connection, size))


async def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = await asyncio.get_running_loop().sock_recv(connection, size - len(data))
        if not piece:
            raise ConnectionError("it closed the connection")
        data += piece
    return data
