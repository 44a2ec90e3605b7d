"""The store of `init_method="farandole://"`, for ranks that prove the job's key; torch's own has no authentication.

    a rank: Store.set, get, add ... --> Request --> rank 0: a thread for each connection --> _Values

Rank 0 keeps the values, as with torch's TCPStore; its own calls take no connection. Every other rank has a connection
for each of its calls that are under way at the same time, so that one that waits holds up no other.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import farandole
import torch.distributed as dist
from farandole.plugin.distributed import (
    CONNECTION_FAILURES,
    Acceptor,
    Message,
    connect,
    connection_key,
    hear,
    hear_bytes,
    own_address,
    say,
    silence_timeout_s,
)

MOST_BYTES = 64 << 20  # of a value: the store is for addresses and small objects
_ANSWER_S = 5.0  # rank 0 has so much longer to answer than a call may wait
_WAITING = ("wait", "get", "queue_pop")

Answer = tuple[Any, list[bytes]]
"""What JSON can say, and values."""


class _MissingError(Exception):
    """This key was not there in time."""


class _RefusedError(Exception):
    """The call cannot be, for this reason."""


@dataclass(frozen=True)
class Request:
    """A call of a rank."""

    call: str
    keys: list[str]
    values: list[bytes]
    amount: int  # to add
    seconds: float  # to wait for the keys


class _Values:
    """The keys and the queues of one store, on rank 0. Safe for any thread."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._queues: dict[str, deque[bytes]] = {}
        self._changed = threading.Condition()

    def perform(self, request: Request) -> Answer:
        """Raises _MissingError, _RefusedError."""
        until = time.monotonic() + request.seconds
        known = self._queues if request.call == "queue_pop" else self._values
        with self._changed:
            while request.call in _WAITING and (missing := [key for key in request.keys if key not in known]):
                if not self._changed.wait(until - time.monotonic()):
                    raise _MissingError(missing[0])
            answer: Answer = _CALLS[request.call](self, request)
            if request.values or request.call == "add":  # no other call makes a key
                self._changed.notify_all()
        return answer

    def set(self, request: Request) -> Answer:
        self._values.update(zip(request.keys, request.values, strict=True))
        return None, []

    def wait(self, _: Request) -> Answer:
        return None, []

    def get(self, request: Request) -> Answer:
        return None, [self._values[key] for key in request.keys]

    def add(self, request: Request) -> Answer:
        (key,) = request.keys
        try:
            total = int(self._values.get(key, b"0")) + request.amount
        except ValueError:
            raise _RefusedError("its value is not a number") from None
        self._values[key] = str(total).encode()
        return total, []

    def append(self, request: Request) -> Answer:
        (key,), (value,) = request.keys, request.values
        self._values[key] = _checked(self._values.get(key, b"") + value)
        return None, []

    def compare_set(self, request: Request) -> Answer:
        (key,), (expected, desired) = request.keys, request.values
        found = self._values.get(key)
        if found == expected or (found is None and not expected):
            found = self._values[key] = desired
        return None, [expected if found is None else found]

    def check(self, request: Request) -> Answer:
        return all(key in self._values for key in request.keys), []

    def delete_key(self, request: Request) -> Answer:
        return self._values.pop(request.keys[0], None) is not None, []

    def num_keys(self, _: Request) -> Answer:
        return len(self._values), []

    def list_keys(self, _: Request) -> Answer:
        return [*self._values], []

    def queue_push(self, request: Request) -> Answer:
        self._queues.setdefault(request.keys[0], deque()).append(request.values[0])
        return None, []

    def queue_pop(self, request: Request) -> Answer:
        (key,) = request.keys
        value = self._queues[key].popleft()
        if not self._queues[key]:
            del self._queues[key]
        return None, [value]

    def queue_len(self, request: Request) -> Answer:
        return len(self._queues.get(request.keys[0], ())), []


_CALLS: dict[str, Callable[[_Values, Request], Answer]] = {
    name: call for name, call in vars(_Values).items() if not name.startswith("_") and name != "perform"
}


class _Server:
    """All stores of a job, on rank 0, until its process ends."""

    def __init__(self) -> None:
        self.opened = 0  # stores
        self.place = ("", 0)  # where the other ranks connect to
        self._stores: defaultdict[int, _Values] = defaultdict(_Values)

    def listen(self, key: bytes) -> None:
        """REQUIRES that the ranks have a key: that of a world of one is none."""
        if self.place[1]:
            return
        host = own_address().strip("[]") or "127.0.0.1"  # the one at which the other ranks reach it
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, 0), family=family, backlog=1024)
        self.place = host, listener.getsockname()[1]
        acceptor = Acceptor(key, silence_timeout_s(), self._serve)
        threading.Thread(target=acceptor.serve, args=(listener,), name="farandole store", daemon=True).start()

    def perform(self, store: int, request: Request) -> Answer:
        return self._stores[store].perform(request)

    def _serve(self, connection: socket.socket, message: Message) -> None:
        """Answer a rank that has proved the key and said this, until it ends."""
        with connection, suppress(*CONNECTION_FAILURES):
            while True:
                values = [bytes(hear_bytes(connection, size)) for size in message["sizes"]]
                request = Request(message["kind"], message["keys"], values, message["amount"], message["seconds"])
                try:
                    result, found = self.perform(message["store"], request)
                except (_MissingError, _RefusedError) as error:
                    kind = "missing" if isinstance(error, _MissingError) else "refused"
                    say(connection, kind, why=str(error), sizes=[])
                else:
                    say(connection, "done", result=result, sizes=[*map(len, found)])
                    for each in found:
                        connection.sendall(each)
                message = hear(connection)


class _Client:
    """Has rank 0 perform the calls of another rank."""

    def __init__(self, place: tuple[str, int], key: bytes) -> None:
        self.place, self._key = place, key
        self._idle: deque[socket.socket] = deque()

    def perform(self, store: int, request: Request) -> Answer:
        """Raises like `_Values.perform`, and one of CONNECTION_FAILURES."""
        seconds, values = request.seconds + _ANSWER_S, request.values
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = connect(self.place, self._key, silence_timeout_s(), seconds)
        try:
            connection.settimeout(seconds)
            facts = {"keys": request.keys, "amount": request.amount, "seconds": request.seconds}
            say(connection, request.call, store=store, sizes=[*map(len, values)], **facts)
            for each in values:
                connection.sendall(each)
            answer = hear(connection)
            found = [bytes(hear_bytes(connection, size)) for size in answer["sizes"]]
        except BaseException:  # also Ctrl-C: the next call would take this one's answer for its own
            connection.close()
            raise
        self._idle.append(connection)
        if answer["kind"] != "done":
            raise (_MissingError if answer["kind"] == "missing" else _RefusedError)(answer["why"])
        return answer["result"], found


class Store(dist.Store):  # type: ignore[misc]  # torch is not read
    """See torch.distributed's Store. Safe for any thread.

    Raises, in all calls: `DistStoreError` where a key is not there in time, `DistNetworkError` where rank 0 does not
    answer, ValueError, and TypeError.
    """

    def __init__(self, keeper: _Server | _Client, number: int) -> None:
        super().__init__()
        self._keeper, self._number, self._rank = keeper, number, farandole.rank()
        _kept.append(self)

    def set(self, key: str, value: str | bytes) -> None:
        self._perform("set", [key], [value])

    def get(self, key: str) -> bytes:
        return self._perform("get", [key])[1][0]

    def add(self, key: str, amount: int) -> int:
        return int(self._perform("add", [key], amount=amount)[0])

    def append(self, key: str, value: str | bytes) -> None:
        self._perform("append", [key], [value])

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        return self._perform("compare_set", [key], [expected_value, desired_value])[1][0]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        self._perform("wait", keys, timeout=timeout)

    def check(self, keys: list[str]) -> bool:
        return bool(self._perform("check", keys)[0])

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return self._perform("get", keys)[1]

    def multi_set(self, keys: list[str], values: Sequence[str | bytes]) -> None:
        if len(keys) != len(values):
            raise ValueError(f"multi_set got {len(values)} values for {len(keys)} keys")
        self._perform("set", keys, values)

    def delete_key(self, key: str) -> bool:
        return bool(self._perform("delete_key", [key])[0])

    def num_keys(self) -> int:
        return int(self._perform("num_keys", [])[0])

    def list_keys(self) -> list[str]:
        return [*map(str, self._perform("list_keys", [])[0])]

    def queue_push(self, key: str, value: str | bytes) -> None:
        self._perform("queue_push", [key], [value])

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return self._perform("queue_pop", [key], timeout=None if block else timedelta())[1][0]

    def queue_len(self, key: str) -> int:
        return int(self._perform("queue_len", [key])[0])

    def has_extended_api(self) -> bool:
        return True

    def clone(self) -> Store:
        """The same values, with a timeout of its own."""
        made = Store(self._keeper, self._number)
        made.set_timeout(self.timeout)
        return made

    deleteKey, getNumKeys = delete_key, num_keys  # by which C++ calls them; it calls no queues of Python's

    def _perform(
        self,
        call: str,
        keys: list[str],
        values: Sequence[str | bytes] = (),
        amount: int = 0,
        timeout: timedelta | None = None,
    ) -> Answer:
        what = f"rank {self._rank}: {call}({', '.join(map(repr, keys))}) of the store of torch.distributed"
        seconds = (self.timeout if timeout is None else timeout).total_seconds()
        try:
            return self._keeper.perform(self._number, Request(call, keys, [*map(_to_bytes, values)], amount, seconds))
        except _MissingError as error:
            raise dist.DistStoreError(f"{what}: no rank has set {str(error)!r} within {seconds:g} s") from None
        except TypeError as error:
            raise TypeError(f"{what}: {error}") from None
        except _RefusedError as error:
            raise ValueError(f"{what}: {error}") from None
        except CONNECTION_FAILURES as error:
            why = str(error) or type(error).__name__
            raise dist.DistNetworkError(f"{what}: rank 0, which keeps it, does not answer ({why})") from error


_kept: list[Store] = []  # torch's PrefixStore keeps the part of a store that is in C++, which calls the one in Python
_keepers: dict[bytes, _Server | _Client] = {}  # by the key, which is of one job


def open_store() -> Store:
    """A new store of all ranks. Collective."""
    key = connection_key("torch.distributed")
    keeper, found = _keepers.get(key), None
    if farandole.rank() == 0:
        if not isinstance(keeper, _Server):
            keeper = _Server()
        if farandole.size() > 1:
            keeper.listen(key)
        keeper.opened += 1
        found = keeper.place, keeper.opened
    place, number = farandole.broadcast_object(found, root_rank=0, name="torch.distributed.store")
    if keeper is None or keeper.place != place:
        keeper = _Client(place, key)
    _keepers[key] = keeper
    return Store(keeper, number)


def _to_bytes(value: object) -> bytes:
    """Raise TypeError, _RefusedError."""
    if isinstance(value, str):
        value = value.encode()
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"a value is a string or bytes, not {type(value).__name__}")
    return _checked(bytes(value))


def _checked(value: bytes) -> bytes:
    """Raises _RefusedError."""
    if len(value) > MOST_BYTES:
        raise _RefusedError(f"a value may have {MOST_BYTES >> 20} MiB, not {len(value)} bytes")
    return value
