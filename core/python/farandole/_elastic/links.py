"""Connections between the members of an elastic job while they decide. Nothing here waits.

Each member sends by the connections that it has made, and receives by those that the others have made. Both ends prove
that they have the job's key first. A frame is its size in four bytes, then JSON; the first one is the caller's number.
A kernel takes a connection for a member that still computes, so a connection that is there is a sign of life.
"""

from __future__ import annotations

import errno
import json
import os
import selectors
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from farandole._start import environment, sockets
from farandole._start.proof import Proof, ProofError

MOST_BYTES = 1 << 20
PROOF_S = 5.0  # from the first packet to the end of the proof
_MOST_WAITING = 1000  # messages for a member that has not taken the connection yet
_CHUNK = 1 << 16
_SIZE = struct.Struct("!I")
_RETRY_S = 0.05


def listen(endpoint: str) -> tuple[socket.socket, str]:
    """A listener at "unix:<abstract name>" or "tcp:<address>", and its whole endpoint. Raises OSError."""
    kind, _, place = endpoint.partition(":")
    made = socket.socket(socket.AF_UNIX if kind == "unix" else _family(place), socket.SOCK_STREAM)
    try:
        made.bind("\0" + place if kind == "unix" else (place.strip("[]"), 0))
        made.listen(socket.SOMAXCONN)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made, endpoint if kind == "unix" else f"{endpoint}:{made.getsockname()[1]}"


def frame(data: bytes) -> bytes:
    """As it travels."""
    return _SIZE.pack(len(data)) + data


class Caller:
    """A connection to one member, made again and again until it lasts."""

    def __init__(
        self,
        me: int,
        endpoint: str,
        key: bytes,
        attempt_s: float,
        selector: selectors.BaseSelector,
        on_socket: Callable[[socket.socket], None],
    ) -> None:
        self.retry_s = 0.0  # when `tick` connects, at the earliest
        self.is_up = False  # the other kernel has the connection
        self.is_refused = False  # nobody listens there
        self._hello, self._endpoint, self._key = frame(json.dumps(me).encode()), endpoint, key
        self._attempt_s, self._until_s = attempt_s, 0.0
        self._selector, self._on_socket = selector, on_socket
        self._socket: socket.socket | None = None
        self._proof = Proof(key, is_listener=False)
        self._out = bytearray()
        self._waiting: list[bytes] = []

    @property
    def is_local(self) -> bool:
        """The other end is on this host, so that its kernel is ours."""
        return self._endpoint.startswith("unix:")

    @property
    def next_look_s(self) -> float:
        """`tick` has something to do then; infinite where it has nothing."""
        if self._socket is None:
            return self.retry_s
        return float("inf") if self.is_up else self._until_s

    def tick(self, now: float) -> None:
        """Connect, or give an attempt up, where that is due."""
        if self._socket is not None and not self.is_up and now >= self._until_s:
            self.end(now)
        if self._socket is None and now >= self.retry_s:
            self._connect(now)

    def say(self, data: bytes) -> None:
        """Send a message, once the other end has proved itself."""
        if self._socket is not None and self._proof.is_done:
            self._out += frame(data)
            self._flush()
        elif len(self._waiting) < _MOST_WAITING:
            self._waiting.append(data)

    def end(self, now: float, retry_s: float = _RETRY_S) -> None:
        """Close the connection."""
        if self._socket is not None:
            with suppress(KeyError):
                self._selector.unregister(self._socket)
            self._socket.close()
        self._socket, self.is_up, self.retry_s = None, False, now + retry_s
        self._out.clear()

    def on_event(self, mask: int, now: float) -> None:
        """The selector has seen something."""
        if self._socket is None:
            return
        if not self.is_up:
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._connected(now) if not error else self._failed(error, now)
            return
        if mask & selectors.EVENT_READ and not self._read():
            self.end(now, 0.0 if self.is_local and not self._proof.has_proved else _RETRY_S)
        else:
            self._flush()

    def _connect(self, now: float) -> None:
        kind, _, place = self._endpoint.partition(":")
        address, _, port = place.rpartition(":")
        self._socket = socket.socket(socket.AF_UNIX if kind == "unix" else _family(address), socket.SOCK_STREAM)
        self._on_socket(self._socket)
        self._socket.setblocking(False)
        self._until_s = now + self._attempt_s
        if kind == "unix":
            error = self._socket.connect_ex("\0" + place)
        else:
            sockets.notice_lost_hosts(self._socket, environment.silence_timeout_s())
            try:
                error = self._socket.connect_ex((address.strip("[]"), int(port)))
            except OSError as failure:  # a name that is not known
                error = failure.errno or errno.EHOSTUNREACH
        if error == errno.EINPROGRESS:
            self._selector.register(self._socket, selectors.EVENT_WRITE, self.on_event)
        elif error:
            self._failed(error, now)
        else:
            self._connected(now)

    def _connected(self, now: float) -> None:
        assert self._socket is not None
        if self.is_local and not sockets.is_ours(self._socket):  # the name's owner has gone, and another user has it
            self._failed(errno.ECONNREFUSED, now)
            return
        with suppress(KeyError):
            self._selector.unregister(self._socket)
        self._selector.register(self._socket, selectors.EVENT_READ, self.on_event)
        self._proof = Proof(self._key, is_listener=False)
        self.is_up, self.is_refused = True, False

    def _failed(self, error: int, now: float) -> None:
        self.end(now, _RETRY_S if self.is_local else self._attempt_s / 4)
        self.is_refused = error == errno.ECONNREFUSED
        self.is_up = self.is_local and error == errno.EAGAIN  # its backlog is full, so it is there

    def _read(self) -> bool:
        assert self._socket is not None
        try:
            data = self._socket.recv(_CHUNK)
            if not data:
                return False
            if self._proof.is_done:
                return False  # the other end has nothing to say
            answer, _ = self._proof.feed(data)
        except BlockingIOError:
            return True
        except (OSError, ProofError):
            return False
        self._out += answer
        if self._proof.is_done:
            self._out += self._hello + b"".join(map(frame, self._waiting))
            self._waiting.clear()
        return True

    def _flush(self) -> None:
        if self._socket is None or not self.is_up:
            return
        with suppress(OSError):  # its end is seen by the next read
            while self._out:
                del self._out[: self._socket.send(self._out)]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
        if self._selector.get_key(self._socket).events != wanted:
            self._selector.modify(self._socket, wanted, self.on_event)


class Called:
    """A connection that somebody has made to this member."""

    def __init__(self, connection: socket.socket, key: bytes, selector: selectors.BaseSelector, until_s: float) -> None:
        """Raises OSError where it is gone already."""
        self.until_s = until_s  # the proof has to be there then
        self.sender = -1
        self._socket, self._selector, self._proof = connection, selector, Proof(key, is_listener=True)
        self._received = bytearray()
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            sockets.notice_lost_hosts(connection, environment.silence_timeout_s())
        connection.send(self._proof.first())  # a new connection has room for it

    @property
    def is_proved(self) -> bool:
        """The other end is of this job."""
        return self._proof.is_done

    def watch(self, on_event: Callable[[int, float], None]) -> None:
        """The selector calls this from now on."""
        self._selector.register(self._socket, selectors.EVENT_READ, on_event)

    def end(self) -> None:
        """Close it."""
        with suppress(KeyError):
            self._selector.unregister(self._socket)
        self._socket.close()

    def read(self) -> list[bytes]:
        """The messages that have come. Raises OSError, ProofError or ValueError where the connection has to close."""
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return []
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        if not self._proof.is_done:
            answer, data = self._proof.feed(data)
            if answer:
                self._socket.send(answer)
        self._received += data
        messages = self._frames()
        if messages and self.sender < 0:
            sender = json.loads(messages.pop(0))
            if type(sender) is not int or sender < 0:
                raise ValueError("a connection does not say whose it is")
            self.sender = sender
        return messages

    def _frames(self) -> list[bytes]:
        found = []
        while len(self._received) >= _SIZE.size:
            size = _SIZE.unpack_from(self._received)[0]
            if size > MOST_BYTES:
                raise ValueError("a message is too long")
            if len(self._received) < _SIZE.size + size:
                break
            found.append(bytes(self._received[_SIZE.size : _SIZE.size + size]))
            del self._received[: _SIZE.size + size]
        return found


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
