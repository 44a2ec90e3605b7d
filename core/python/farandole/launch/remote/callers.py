"""An agent's socket for launchers that want to adopt its job: each proves the job's key before it is heard.

The socket is an abstract one of the agent's host. Another user's process is not heard; the key tells this job from
others of the same user.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from farandole._start import sockets
from farandole._start.proof import Proof, ProofError
from farandole.launch.remote import frames

_PROOF_SECONDS = 5.0
_MOST = 16  # at once
_CHUNK = 1 << 16


@dataclass(eq=False)
class Caller:
    """A launcher's connection."""

    number: int
    connection: socket.socket
    proof: Proof
    since: float
    reader: frames.FrameReader = field(default_factory=lambda: frames.FrameReader(greeted=True))

    def say(self, kind: str, **content: object) -> None:
        """Send a small message; where the caller is gone or does not read, its connection ends."""
        with contextlib.suppress(OSError):
            self.connection.send(frames.message(kind, **content))


class Callers:
    """All of them. `hear` gets what those say that have proved the key, and None at the end of one."""

    def __init__(
        self,
        name: str,
        key: bytes,
        selector: selectors.BaseSelector,
        hear: Callable[[Caller, frames.Message | None], None],
    ) -> None:
        """Raises OSError."""
        self._key, self._selector, self._hear = key, selector, hear
        self._callers: list[Caller] = []
        self._count = 0
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("\0" + name)
        self._listener.listen(_MOST)
        self._listener.setblocking(False)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Hear nobody any more."""
        for caller in list(self._callers):
            self.drop(caller)
        self._selector.unregister(self._listener)
        self._listener.close()

    def tick(self, now: float) -> None:
        """End those that have not proved the key in time."""
        for caller in list(self._callers):
            if not caller.proof.is_done and now - caller.since >= _PROOF_SECONDS:
                self.drop(caller)

    def take(self, caller: Caller) -> tuple[int, frames.FrameReader]:
        """The descriptor of a caller that becomes the launcher; nothing here owns it any more."""
        self._callers.remove(caller)
        self._selector.unregister(caller.connection)
        return caller.connection.detach(), caller.reader

    def drop(self, caller: Caller) -> None:
        """End this connection."""
        if caller in self._callers:
            self._callers.remove(caller)
            self._selector.unregister(caller.connection)
            caller.connection.close()
            self._hear(caller, None)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
            if not sockets.is_ours(connection) or len(self._callers) >= _MOST:
                connection.close()
                return
        except OSError:
            return
        connection.setblocking(False)
        self._count += 1
        caller = Caller(self._count, connection, Proof(self._key, is_listener=True), time.monotonic())
        self._callers.append(caller)
        self._selector.register(connection, selectors.EVENT_READ, partial(self._read, caller))
        with contextlib.suppress(OSError):
            connection.send(caller.proof.first())

    def _read(self, caller: Caller) -> None:
        try:
            data = caller.connection.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(caller)
            return
        try:
            if not caller.proof.is_done:
                answer, data = caller.proof.feed(data)
                if not caller.proof.is_done:
                    return
                with contextlib.suppress(OSError):
                    caller.connection.send(answer + frames.GREETING)
                caller.say("adoptable")
            self._feed(caller, data)
        except (ProofError, frames.FrameError):
            self.drop(caller)

    def _feed(self, caller: Caller, data: bytes) -> None:
        for frame in caller.reader.feed(data):
            if isinstance(frame, dict):
                self._hear(caller, frame)
