"""Where the processes of a data service meet: which dispatchers and workers there are, and when all end.

    client                                    service
    connects; both ends prove the key
    one request, own addresses           ->   notes the client's addresses; answers once it can
                                         <-   done, or an error

    follow                               ->
                                         <-   hosts: addresses of all clients so far, whenever there are new ones
    known                                ->   a waiting client continues once all followers know its addresses
    or refused, why                      ->   a waiting client gets an error

Dispatchers and workers follow, since TensorFlow's servers have no authentication: they admit these addresses alone. A
client tells all addresses that its host has, as it may reach other hosts by another one than it reaches the service.

Thread safety: the service answers each request in a thread of its own; what it keeps is guarded by `_changed`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import psutil
from farandole.engine import FAILURES, Acceptor, connect, hear, say

from horovod.runner.common.util.timeout import TimeoutException

Addresses = Mapping[str, Sequence[tuple[str, int]]]
_SILENCE_S = 4.0  # after which a lost host shows
_END_S = 10.0  # for the answers to those who wait for the end
_MOST_ADDRESSES = 64  # of a host
_ERRORS: dict[str, type[Exception]] = {
    each.__name__: each for each in (IndexError, ValueError, ConnectionError, TimeoutException)
}


class ComputeService:
    """Keeps what the processes of a data service tell each other, until `shutdown()`.

    Args:
        dispatchers: how many there are.
        workers_per_dispatcher: how many workers each has.
        key: bytes that every process proves before anything else is read, see `secret.make_secret_key`.
        nics: names of the interfaces to listen at, by default all with an IPv4 address.

    Raises:
        ValueError: a number is not positive, or there is no such interface.
    """

    def __init__(
        self, dispatchers: int, workers_per_dispatcher: int, key: bytes, nics: Iterable[str] | None = None
    ) -> None:
        for what, number in (("dispatchers", dispatchers), ("workers per dispatcher", workers_per_dispatcher)):
            if number <= 0:
                raise ValueError(f"the number of {what} must be positive, not {number}")
        self._addresses_of: list[str | None] = [None] * dispatchers
        self._workers_of: list[set[int]] = [set() for _ in range(dispatchers)]
        self._workers_per_dispatcher = workers_per_dispatcher
        self._hosts: list[str] = []  # addresses of clients, in the order of their first requests
        self._refused: dict[str, str] = {}  # of these, those that a follower could not admit, and why
        self._known: dict[object, int] = {}  # how many of them each follower knows
        self._open: set[socket.socket] = set()
        self._has_ended = False
        self._changed = threading.Condition()
        interfaces = _interfaces(nics)
        places = {address for addresses in interfaces.values() for address in addresses}
        (place,) = places if len(places) == 1 else {"0.0.0.0"}
        self._listener = socket.create_server((place, 0), backlog=1024)
        port = self._listener.getsockname()[1]
        self._addresses = {name: [(address, port) for address in each] for name, each in interfaces.items()}
        acceptor = Acceptor(key, _SILENCE_S, self._welcome)
        self._accepting = threading.Thread(target=acceptor.serve, args=(self._listener,), daemon=True)
        self._accepting.start()

    def addresses(self) -> dict[str, list[tuple[str, int]]]:
        """Return the addresses and ports of each interface."""
        return self._addresses.copy()

    def shutdown(self) -> None:
        """Let those who wait for the end continue, then refuse further requests."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._open, _END_S)
        with contextlib.suppress(OSError):  # ended before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()

    # The threads

    def _welcome(self, made: socket.socket, said: dict[str, Any]) -> None:
        answers: dict[str, Callable[..., dict[str, Any]]] = {
            "register_dispatcher": self._register_dispatcher,
            "await_dispatcher": self._await_dispatcher,
            "register_worker": self._register_worker,
            "await_workers": self._await_workers,
            "end": self._end,
            "await_end": self._await_end,
            "follow": self._follow,
        }
        hosts = [made.getpeername()[0], *map(_checked, said.pop("addresses", [])[:_MOST_ADDRESSES])]
        kind = said.pop("kind")
        with self._changed:
            self._open.add(made)
            self._hosts += [host for host in dict.fromkeys(hosts) if host not in self._hosts]
            self._changed.notify_all()
        try:
            say(made, "done", **answers[kind](hosts=hosts, made=made, **said))
        except tuple(_ERRORS.values()) as error:
            say(made, type(error).__name__, text=str(error))
        finally:
            with self._changed:
                self._open.discard(made)
                self._changed.notify_all()
            made.close()

    def _register_dispatcher(self, dispatcher_id: int, address: str, **_: object) -> dict[str, Any]:
        with self._changed:
            self._check(dispatcher_id)
            earlier = self._addresses_of[dispatcher_id]
            if earlier not in (None, address):
                raise ValueError(f"dispatcher {dispatcher_id} is registered at {earlier}, so it cannot be at {address}")
            self._addresses_of[dispatcher_id] = address
            self._changed.notify_all()
        return {}

    def _await_dispatcher(self, dispatcher_id: int, timeout: float, hosts: list[str], **_: object) -> dict[str, Any]:
        with self._changed:
            self._check(dispatcher_id)
            self._await(f"dispatcher {dispatcher_id}", timeout, lambda: self._addresses_of[dispatcher_id] is not None)
            self._await("servers that admit this host", timeout, lambda: self._are_admitted(hosts))
            return {"address": self._addresses_of[dispatcher_id]}

    def _register_worker(self, dispatcher_id: int, worker_id: int, **_: object) -> dict[str, Any]:
        with self._changed:
            self._check(dispatcher_id)
            self._workers_of[dispatcher_id].add(worker_id)
            self._changed.notify_all()
        return {}

    def _await_workers(self, dispatcher_id: int, timeout: float, hosts: list[str], **_: object) -> dict[str, Any]:
        with self._changed:
            place = dispatcher_id if len(self._workers_of) > 1 else 0  # all ranks share a single dispatcher
            self._check(place)
            wanted, workers = self._workers_per_dispatcher, self._workers_of[place]
            self._await(f"{wanted} workers of dispatcher {place}", timeout, lambda: len(workers) >= wanted)
            self._await("servers that admit this host", timeout, lambda: self._are_admitted(hosts))
        return {}

    def _end(self, **_: object) -> dict[str, Any]:
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
        return {}

    def _await_end(self, **_: object) -> dict[str, Any]:
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended)
        return {}

    def _follow(self, made: socket.socket, **_: object) -> dict[str, Any]:
        follower = object()
        with self._changed:
            self._known[follower] = 0
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._has_ended or len(self._hosts) > self._known[follower])
                    hosts = [*self._hosts]
                    if self._has_ended:
                        return {}
                say(made, "hosts", hosts=hosts)
                heard = hear(made)
                with self._changed:
                    if heard["kind"] == "refused":
                        why = f"a server on {made.getpeername()[0]} cannot admit this host: {heard['text']}"
                        self._refused |= dict.fromkeys(hosts[self._known[follower] :], why)
                    self._known[follower] = len(hosts)
                    self._changed.notify_all()
        finally:
            with self._changed:
                del self._known[follower]
                self._changed.notify_all()

    # With `_changed` held

    def _check(self, dispatcher_id: int) -> None:
        last = len(self._addresses_of) - 1
        if not 0 <= dispatcher_id <= last:
            raise IndexError(f"the number of a dispatcher is between 0 and {last}, not {dispatcher_id}")

    def _await(self, what: str, timeout: float, is_here: Callable[[], bool]) -> None:
        if not self._changed.wait_for(is_here, timeout):
            raise TimeoutException(f"there are no {what} after {timeout} s: see why in their output, or wait longer")

    def _are_admitted(self, hosts: list[str]) -> bool:
        """Raise ConnectionError if a server has refused one of them."""
        if why := next((self._refused[host] for host in hosts if host in self._refused), ""):
            raise ConnectionError(why)
        last = max(map(self._hosts.index, hosts))
        return all(known > last for known in self._known.values())


class ComputeClient:
    """Asks a `ComputeService`. Its calls may come from several threads.

    Args:
        compute_addresses: those of the service, by interface.
        key: of the service.
        verbose: without effect.

    Raises:
        ConnectionError: none of the addresses leads to a service with this key.
    """

    def __init__(self, compute_addresses: Addresses, key: bytes, verbose: int = 1) -> None:
        self._key = key
        refused = []
        for endpoint in [(str(host), int(port)) for each in compute_addresses.values() for host, port in each]:
            try:
                with connect(endpoint, key, _SILENCE_S) as made:
                    self.endpoint, self.host = endpoint, str(made.getsockname()[0])
                return
            except FAILURES as error:
                refused.append(f"{endpoint[0]}:{endpoint[1]} ({error})")
        raise ConnectionError(
            f"no compute service answers at {', '.join(refused) or 'no address'}: start it, or give the file of one "
            "that runs"
        )

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        """Tell where a dispatcher is."""
        self._ask("register_dispatcher", dispatcher_id=dispatcher_id, address=dispatcher_address)

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        """Wait so many seconds for a dispatcher, and return its address. Raises TimeoutException."""
        return str(self._ask("await_dispatcher", dispatcher_id=dispatcher_id, timeout=timeout)["address"])

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Tell that a worker of this dispatcher runs."""
        self._ask("register_worker", dispatcher_id=dispatcher_id, worker_id=worker_id)

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        """Wait so many seconds for all workers of a dispatcher. Raises TimeoutException."""
        self._ask("await_workers", dispatcher_id=dispatcher_id, timeout=timeout)

    def shutdown(self) -> None:
        """End the service."""
        self._ask("end")

    def wait_for_shutdown(self) -> None:
        """Wait until someone ends the service."""
        self._ask("await_end")

    def follow(self, admit: Callable[[list[str]], None]) -> socket.socket:
        """Call `admit` with the hosts of all clients, now and in a thread whenever there is another one.

        Returns:
            the connection; `shutdown` of it ends the calls.
        """
        made = connect(self.endpoint, self._key, _SILENCE_S)
        say(made, "follow", addresses=_own_addresses())
        _admit_next(made, admit)
        threading.Thread(target=_admit_all, args=(made, admit), daemon=True).start()
        return made

    def _ask(self, kind: str, **content: Any) -> dict[str, Any]:
        with connect(self.endpoint, self._key, _SILENCE_S) as made:
            say(made, kind, addresses=_own_addresses(), **content)
            answer = hear(made)
        if answer["kind"] in _ERRORS:
            raise _ERRORS[answer["kind"]](answer["text"])
        return answer


def _admit_all(made: socket.socket, admit: Callable[[list[str]], None]) -> None:
    with made, contextlib.suppress(*FAILURES):
        while _admit_next(made, admit):
            pass


def _admit_next(made: socket.socket, admit: Callable[[list[str]], None]) -> bool:
    said = hear(made)
    if said["kind"] == "hosts":
        try:
            admit(said["hosts"])
        except OSError as error:
            say(made, "refused", text=str(error))
        else:
            say(made, "known")
    return bool(said["kind"] == "hosts")


def _own_addresses() -> list[str]:
    """Those that other hosts may see this one by."""
    return [address for each in _interfaces(None).values() for address in each if not address.startswith("127.")]


def _checked(address: str) -> str:
    """Raise ValueError for what is no IPv4 address."""
    return str(ipaddress.IPv4Address(address))


def _interfaces(nics: Iterable[str] | None) -> dict[str, list[str]]:
    """The IPv4 addresses of these interfaces, or of all. Raises ValueError where there are none."""
    found = {
        name: [each.address for each in addresses if each.family == socket.AF_INET]
        for name, addresses in psutil.net_if_addrs().items()
        if nics is None or name in nics
    }
    found = {name: addresses for name, addresses in found.items() if addresses}
    if not found:
        raise ValueError(f"no interface of {'this host' if nics is None else ', '.join(nics)} has an IPv4 address")
    return found
