"""Tries which addresses of other hosts can be reached: each agent listens at its own, and connects to theirs.

Both ends prove a key that is made of the job's key for this and the number of the host that listens, since addresses of
containers' bridges exist on many hosts. Each connection has a thread; all threads have ended when `close` returns, so
that ranks can be forked then.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import threading
from collections.abc import Callable, Sequence

from farandole._start.connection import FAILURES, accepted, connect, prove

_SECONDS = 2.0  # to connect, and for the proof
_MOST_CALLERS = 512

Target = tuple[int, str, int]
"""A host's number, an address of it, and the port there."""


class Prober:
    """Probes addresses for one agent. `host` is its number in the job."""

    def __init__(self, host: int, key: bytes) -> None:
        self._host, self._key = host, key
        self._listeners: list[socket.socket] = []
        self._callers: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._trials: list[threading.Thread] | None = None  # that are under way
        self._reached: list[tuple[int, str]] = []

    def listen(self, addresses: Sequence[str]) -> dict[str, int]:
        """Listen at each of the addresses, as far as that is possible; returns the ports."""
        ports = {}
        for address in addresses:
            with contextlib.suppress(OSError):
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                made = socket.create_server((address, 0), family=family, backlog=_MOST_CALLERS)
                ports[address] = made.getsockname()[1]
                self._listeners.append(made)
                self._begin(self._accept, made)
        return ports

    def start(self, targets: Sequence[Target]) -> None:
        """Connect to all of them at once."""
        self._trials = [self._begin(self._try, target) for target in targets]

    @property
    def is_trying(self) -> bool:
        """Return whether `take_reached` is wanted."""
        return self._trials is not None

    def take_reached(self) -> list[tuple[int, str]] | None:
        """The targets that have answered, once all trials have ended. Returns them once."""
        if self._trials is None or any(each.is_alive() for each in self._trials):
            return None
        self._trials = None
        return self._reached

    def close(self) -> None:
        """Stop listening and answering, and wait for the last trial."""
        for each in [*self._listeners, *self._callers]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for listener in self._listeners:
            listener.close()

    def _begin(self, work: Callable[..., None], what: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=(what,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self, listener: socket.socket) -> None:
        for made, _ in accepted(listener):
            if len(self._callers) >= _MOST_CALLERS:
                made.close()
                continue
            self._callers.add(made)
            self._begin(self._answer, made)

    def _answer(self, made: socket.socket) -> None:
        with made, contextlib.suppress(*FAILURES):
            prove(made, self._key_of(self._host), is_listener=True, seconds=_SECONDS)
        self._callers.discard(made)

    def _try(self, target: Target) -> None:
        host, address, port = target
        with contextlib.suppress(*FAILURES):
            connect((address, port), self._key_of(host), seconds=_SECONDS).close()
            self._reached.append((host, address))

    def _key_of(self, host: int) -> bytes:
        return hmac.digest(self._key, b"farandole probe %d" % host, "sha256")
