"""Tries which addresses of other hosts can be reached: each agent listens at its own, and connects to theirs.

    connector                                   listener
    nonce, MAC(key, "ask" nonce)         ->     closes without a word unless the MAC is right
                                         <-     MAC(key, "answer" host nonce)

The answer names the host, since addresses of containers' bridges exist on many. The key serves for nothing else.
Nothing here waits; a selector calls.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_NONCE_BYTES = 16
_MAC_BYTES = 32
_SECONDS = 2.0  # for each connection
_MOST_GUESTS = 512

Target = tuple[int, str, int]
"""A host's number, an address of it, and the port there."""


def _mac(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"farandole probe" + b"\0".join(parts), "sha256")


@dataclass(eq=False)
class _Guest:
    """A connection that somebody has made to us."""

    socket: socket.socket
    until: float
    received: bytearray = field(default_factory=bytearray)


@dataclass(eq=False)
class _Try:
    """A connection that we make."""

    socket: socket.socket
    target: Target
    until: float
    nonce: bytes = field(default_factory=lambda: os.urandom(_NONCE_BYTES))
    asked: bool = False
    received: bytearray = field(default_factory=bytearray)


class Prober:
    """Of one agent. `host` is its number in the job."""

    def __init__(self, host: int, key: bytes, selector: selectors.BaseSelector) -> None:
        self._host, self._key, self._selector = host, key, selector
        self._listeners: list[socket.socket] = []
        self._guests: list[_Guest] = []
        self._tries: list[_Try] = []
        self._reached: list[tuple[int, str]] = []
        self._on_end: Callable[[list[tuple[int, str]]], None] | None = None

    def listen(self, addresses: Sequence[str]) -> dict[str, int]:
        """Listen at each of the addresses, as far as that is possible; returns the ports."""
        ports = {}
        for address in addresses:
            made = socket.socket(_family(address), socket.SOCK_STREAM)
            try:
                made.bind((address, 0))
                made.listen(_MOST_GUESTS)
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
            attempt = _Try(made, target, time.monotonic() + _SECONDS)
            if made.connect_ex((target[1], target[2])) not in (0, errno.EINPROGRESS):
                made.close()
                continue
            self._tries.append(attempt)
            self._selector.register(made, selectors.EVENT_WRITE, lambda attempt=attempt: self._go_on(attempt))
        self._end_if_done()

    def next_due(self) -> float | None:
        """In how many seconds `tick` is wanted."""
        times = [guest.until for guest in self._guests] + [attempt.until for attempt in self._tries]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def tick(self) -> None:
        """Give up who takes too long."""
        now = time.monotonic()
        for guest in [each for each in self._guests if each.until <= now]:
            self._dismiss(guest)
        for attempt in [each for each in self._tries if each.until <= now]:
            self._give_up(attempt)

    def close(self) -> None:
        """Stop listening and trying."""
        self._on_end = None
        for guest in list(self._guests):
            self._dismiss(guest)
        for attempt in list(self._tries):
            self._give_up(attempt)
        for listener in self._listeners:
            self._selector.unregister(listener)
            listener.close()
        self._listeners = []

    # Listening

    def _accept(self, listener: socket.socket) -> None:
        try:
            made, _ = listener.accept()
        except OSError:
            return
        made.setblocking(False)
        guest = _Guest(made, time.monotonic() + _SECONDS)
        if len(self._guests) >= _MOST_GUESTS:
            self._dismiss(self._guests[0])
        self._guests.append(guest)
        self._selector.register(made, selectors.EVENT_READ, lambda: self._hear(guest))

    def _hear(self, guest: _Guest) -> None:
        data = _received(guest.socket, _NONCE_BYTES + _MAC_BYTES - len(guest.received))
        guest.received += data
        if data and len(guest.received) < _NONCE_BYTES + _MAC_BYTES:
            return
        nonce, mac = bytes(guest.received[:_NONCE_BYTES]), bytes(guest.received[_NONCE_BYTES:])
        if hmac.compare_digest(mac, _mac(self._key, b"ask", nonce)):
            with contextlib.suppress(OSError):
                guest.socket.send(_mac(self._key, b"answer", str(self._host).encode(), nonce))
        self._dismiss(guest)

    def _dismiss(self, guest: _Guest) -> None:
        self._guests.remove(guest)
        self._selector.unregister(guest.socket)
        guest.socket.close()

    # Trying

    def _go_on(self, attempt: _Try) -> None:
        if not attempt.asked:
            attempt.asked = True
            try:
                attempt.socket.send(attempt.nonce + _mac(self._key, b"ask", attempt.nonce))
            except OSError:
                self._give_up(attempt)
                return
            self._selector.modify(attempt.socket, selectors.EVENT_READ, lambda: self._go_on(attempt))
            return
        data = _received(attempt.socket, _MAC_BYTES - len(attempt.received))
        attempt.received += data
        if data and len(attempt.received) < _MAC_BYTES:
            return
        host, address, _ = attempt.target
        if hmac.compare_digest(bytes(attempt.received), _mac(self._key, b"answer", str(host).encode(), attempt.nonce)):
            self._reached.append((host, address))
        self._give_up(attempt)

    def _give_up(self, attempt: _Try) -> None:
        self._tries.remove(attempt)
        self._selector.unregister(attempt.socket)
        attempt.socket.close()
        self._end_if_done()

    def _end_if_done(self) -> None:
        if not self._tries and self._on_end is not None:
            on_end, self._on_end = self._on_end, None
            on_end(self._reached)


def _received(connection: socket.socket, most: int) -> bytes:
    """b"" where the other side has closed, or there is an error."""
    try:
        return connection.recv(most)
    except OSError:
        return b""


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
