"""Tries which addresses of other hosts can be reached: each agent listens at its own, and connects to theirs.

Both ends prove a key that is made of the job's key for this and the number of the host that listens, since addresses of
containers' bridges exist on many hosts. Nothing here waits; a selector calls.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from farandole._start.proof import Proof, ProofError

_CHUNK = 1 << 10
_SECONDS = 2.0  # for each connection
_MOST_CALLERS = 512

Target = tuple[int, str, int]
"""A host's number, an address of it, and the port there."""


@dataclass(eq=False)
class _Talk:
    """A connection that somebody has made to us, or that we make to a target."""

    socket: socket.socket
    proof: Proof
    until: float
    target: Target | None = None


class Prober:
    """Of one agent. `host` is its number in the job."""

    def __init__(self, host: int, key: bytes, selector: selectors.BaseSelector) -> None:
        self._host, self._key, self._selector = host, key, selector
        self._listeners: list[socket.socket] = []
        self._talks: list[_Talk] = []
        self._reached: list[tuple[int, str]] = []
        self._on_end: Callable[[list[tuple[int, str]]], None] | None = None

    def listen(self, addresses: Sequence[str]) -> dict[str, int]:
        """Listen at each of the addresses, as far as that is possible; returns the ports."""
        ports = {}
        for address in addresses:
            made = socket.socket(_family(address), socket.SOCK_STREAM)
            try:
                made.bind((address, 0))
                made.listen(_MOST_CALLERS)
            except OSError:
                made.close()
                continue
            made.setblocking(False)
            ports[address] = made.getsockname()[1]
            self._listeners.append(made)
            self._selector.register(made, selectors.EVENT_READ, lambda made=made: self._accept(made))
        return ports

    def start(self, targets: Sequence[Target], on_end: Callable[[list[tuple[int, str]]], None]) -> None:
        """Connect to all of them at once; `on_end` gets those that have answered."""
        self._on_end = on_end
        for target in targets:
            made = socket.socket(_family(target[1]), socket.SOCK_STREAM)
            made.setblocking(False)
            if made.connect_ex((target[1], target[2])) in (0, errno.EINPROGRESS):
                self._add(made, target[0], target)
            else:
                made.close()
        self._end_if_done()

    def next_due(self) -> float | None:
        """In how many seconds `tick` is wanted."""
        return max(0.0, min(each.until for each in self._talks) - time.monotonic()) if self._talks else None

    def tick(self) -> None:
        """Give up who takes too long."""
        now = time.monotonic()
        for talk in [each for each in self._talks if each.until <= now]:
            self._end(talk)

    def close(self) -> None:
        """Stop listening and trying."""
        self._on_end = None
        for talk in list(self._talks):
            self._end(talk)
        for listener in self._listeners:
            self._selector.unregister(listener)
            listener.close()
        self._listeners = []

    def _accept(self, listener: socket.socket) -> None:
        try:
            made, _ = listener.accept()
        except OSError:
            return
        made.setblocking(False)
        callers = [each for each in self._talks if each.target is None]
        if len(callers) >= _MOST_CALLERS:
            self._end(callers[0])
        talk = self._add(made, self._host, None)
        with contextlib.suppress(OSError):
            made.send(talk.proof.first())

    def _add(self, made: socket.socket, host: int, target: Target | None) -> _Talk:
        key = hmac.digest(self._key, b"farandole probe %d" % host, "sha256")
        talk = _Talk(made, Proof(key, is_listener=target is None), time.monotonic() + _SECONDS, target)
        self._talks.append(talk)
        self._selector.register(made, selectors.EVENT_READ, lambda: self._hear(talk))
        return talk

    def _hear(self, talk: _Talk) -> None:
        """One that could not be made, or has ended, is read likewise."""
        try:
            data = talk.socket.recv(_CHUNK)
            talk.socket.send(talk.proof.feed(data))
        except (OSError, ProofError):
            data = b""
        if talk.proof.is_done and talk.target is not None:
            self._reached.append(talk.target[:2])
        if talk.proof.is_done or not data:
            self._end(talk)

    def _end(self, talk: _Talk) -> None:
        self._talks.remove(talk)
        self._selector.unregister(talk.socket)
        talk.socket.close()
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._on_end is not None and not any(each.target for each in self._talks):
            on_end, self._on_end = self._on_end, None
            on_end(self._reached)


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
