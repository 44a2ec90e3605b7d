"""A connection between the launchers of two nodes: the proof of the key, then messages. Nothing here waits."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from farandole._start import sockets
from farandole._start.proof import OtherProgramError, Proof, ProofError
from farandole.launch.remote import frames
from farandole.launch.remote.outgoing import Outgoing

_CHUNK = 1 << 16
_PROOF_SECONDS = 5.0  # from the first packet to the end of the proof


@dataclass(eq=False)
class Channel:
    """One connection. `connection`: non-blocking; connected, or about to be where `is_connecting`."""

    connection: socket.socket
    selector: selectors.BaseSelector
    proof: Proof
    on_message: Callable[[Channel, frames.Message], None]
    on_end: Callable[[Channel], None]
    silence_s: float  # of the other host until it counts as lost
    is_connecting: bool = False
    node: int = -1  # of the other end, once it has said so
    why: str = ""  # it has ended
    is_other_program: bool = False  # at the other end
    is_refused: bool = False  # by the other end, or we refuse it: the keys differ
    other_address: str = ""  # of the other end
    until: float = field(default_factory=lambda: time.monotonic() + _PROOF_SECONDS)
    _reader: frames.FrameReader = field(default_factory=lambda: frames.FrameReader(greeted=True))

    def __post_init__(self) -> None:
        sockets.notice_lost_hosts(self.connection, self.silence_s)
        self._out_descriptor = os.dup(self.connection.fileno())  # a selector takes a descriptor once
        self._out = Outgoing(self._out_descriptor, self.selector)
        if self.is_connecting:
            self.selector.register(self.connection, selectors.EVENT_WRITE, self._connected)
        else:
            self._begin()

    @property
    def is_open(self) -> bool:
        """Returns whether it is there, or about to be."""
        return not self.why

    @property
    def is_flushed(self) -> bool:
        """Returns whether all that was said is with the kernel."""
        return self._out.idle

    @property
    def own_address(self) -> str:
        """The address of this host that leads there."""
        return str(self.connection.getsockname()[0]).partition("%")[0]

    def say(self, kind: str, **content: Any) -> None:
        """Send a message. REQUIRES the proof."""
        if self.is_open:
            self._out.write(frames.message(kind, **content))

    def tick(self, now: float) -> None:
        """Give up an end that proves nothing in time."""
        if self.is_open and not self.proof.is_done and now >= self.until:
            self.end("it does not answer")

    def end(self, why: str) -> None:
        """Close it, and tell our side."""
        if not self.is_open:
            return
        self.why = why
        self.selector.unregister(self.connection)
        self._out.close()
        os.close(self._out_descriptor)
        self.connection.close()
        self.on_end(self)

    def _connected(self) -> None:
        error = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self.end(os.strerror(error))
            return
        self.selector.unregister(self.connection)
        self._begin()

    def _begin(self) -> None:
        self.selector.register(self.connection, selectors.EVENT_READ, self._read)
        self._out.write(self.proof.first())

    def _read(self) -> None:
        try:
            data = self.connection.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            self.end(error.strerror or str(error))
            return
        try:
            self._take(data)
        except OtherProgramError:
            self.is_other_program = True
            self.end("another program answers")
        except ProofError:
            self.is_refused = True
            self.end("it has another key")
        except (frames.FrameError, KeyError, TypeError, ValueError):
            self.end("its message makes no sense")

    def _take(self, data: bytes) -> None:
        if not data:
            self.is_refused = self.proof.has_proved and not self.proof.is_done
            self.end("it closed the connection")
            return
        if not self.proof.is_done:
            answer, data = self.proof.feed(data)
            self._out.write(answer)
        for frame in self._reader.feed(data):
            if isinstance(frame, dict) and self.is_open:
                self.on_message(self, frame)


def connect(
    address: str,
    port: int,
    selector: selectors.BaseSelector,
    key: bytes,
    on_message: Callable[[Channel, frames.Message], None],
    silence_s: float,
) -> Channel:
    """A channel on its way to an address. Raises OSError where there is no way."""
    made = socket.socket(family(address), socket.SOCK_STREAM)
    made.setblocking(False)
    error = made.connect_ex((address, port))
    if error not in (0, errno.EINPROGRESS):
        made.close()
        raise OSError(error, os.strerror(error))
    proof = Proof(key, is_listener=False)
    return Channel(made, selector, proof, on_message, lambda _: None, silence_s, is_connecting=True)


def listen(address: str, port: int) -> socket.socket:
    """A listener there. Raises OSError."""
    made = socket.socket(family(address), socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        made.listen(512)
    except OSError:
        made.close()
        raise
    made.setblocking(False)
    return made


def family(address: str) -> socket.AddressFamily:
    """Of an address as a text."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET
