"""Lets the nodes of a job meet: node 0 listens at its own name, the others dial in.

    node 0                                          node 1 ...
    looks its name up until it is its own           looks the name up until it is known
    listens there                                   connects until somebody answers
    <--------------- _start/proof.py --------------->
    <------------------------------------ greeting, of an agent: and its number, number of nodes, slots, address
    start: the places of all ranks ---------------->   or "refused" with a sentence
    closes the listener                             starts its ranks

From the proof on everything is a frame, as between a launcher and the agents that it reaches by ssh. Each end works in
a thread, while the main one looks for signals, which are blocked, and at the time. The thread of a node that dials in
is gone when `dial` returns, so that ranks can be forked afterwards.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TypeVar

from farandole._start.connection import Acceptor, connect, hear, say
from farandole._start.frames import Message
from farandole._start.proof import OtherProgramError, ProofError
from farandole.launch import environment, guard
from farandole.launch.agent.host_agent import about_this_host
from farandole.launch.environment import own_version
from farandole.launch.head import address_search, node_list
from farandole.launch.node_options import NodeOptions
from farandole.launch.spec import SpecError

CANNOT_START = 2
_TURN_SECONDS = 0.2
_LOOK_SECONDS = 0.02  # between two looks at the connections to nodes that have come
_AGAIN_SECONDS = 0.5  # between two looks at a name, or two tries of an address
_TELL_AFTER_SECONDS = 10.0  # a start that takes no longer needs no explanation
_FLUSH_SECONDS = 2.0
_LATER_SECONDS = 10.0
_REFUSALS = 2  # the first may be a node 0 that has just ended

_T = TypeVar("_T")


@dataclass
class Rendezvous(ABC):
    """One node's part. `lifeline`: is at its end when the launcher's outer process has gone."""

    options: NodeOptions
    lifeline: int
    tell: Callable[[str], None]
    _began: float = field(default_factory=time.monotonic)
    _reported: bool = False

    @abstractmethod
    def late(self) -> str:
        """The sentence for a start that takes too long."""

    @abstractmethod
    def waits_for(self) -> str:
        """The sentence about what is waited for."""

    def limit_s(self) -> float:
        """The time limit of the start, in seconds."""
        return self.options.wait_s

    def watch(self, work: Callable[[], _T]) -> _T:
        """What `work` returns, unless the user or the time ends it. Raises SpecError."""
        result: Future[_T] = Future()

        def run() -> None:
            try:
                result.set_result(work())
            except Exception as error:
                result.set_exception(error)

        thread = threading.Thread(target=run, name="farandole-rendezvous", daemon=True)  # nothing else can end it
        thread.start()
        while not wait([result], _TURN_SECONDS).done:
            self._look_for_an_end()
        thread.join()
        return result.result()

    def _look_for_an_end(self) -> None:
        if waiting := [each for each in signal.sigpending() if each in guard.ENDING]:
            name = signal.Signals(waiting[0]).name
            raise SpecError(f"ended by {name} before all nodes had come.", exit_code=128 + waiting[0])
        if select.select([self.lifeline], [], [], 0)[0]:
            raise SpecError("", exit_code=128 + signal.SIGKILL)  # there is nobody to tell
        waited_s = time.monotonic() - self._began
        if waited_s >= self.limit_s():
            raise SpecError(self.late())
        if waited_s >= _TELL_AFTER_SECONDS and not self._reported:
            self._reported = True
            self.tell(self.waits_for())

    def look_up(self) -> list[str]:
        """The addresses of node 0's name, IPv4 first; none where it is not known, or not yet."""
        if ":" in self.options.host:
            return [self.options.host]
        found: list[str] = []
        with contextlib.suppress(OSError):
            infos = socket.getaddrinfo(self.options.host, self.options.port, type=socket.SOCK_STREAM)
            found.extend(str(info[4][0]) for info in infos)
        return sorted(dict.fromkeys(found), key=lambda address: ":" in address)

    def address_for_ranks(self, reached: str) -> str:
        """The address of this node's ranks: the one that leads to the meeting point, or of the chosen interfaces."""
        if not self.options.interfaces:
            return reached
        found = [address_search.Address(*each) for each in environment.interface_addresses()]
        usable = address_search.candidates(found, self.options.interfaces)
        if not usable:
            names = ",".join(self.options.interfaces)
            raise SpecError(
                f"node {self.options.number} has no address on --network-interfaces {names}; `ip address` lists them."
            )
        return next((each for each in usable if (":" in each) == (":" in reached)), usable[0])


@dataclass
class RendezvousServer(Rendezvous):
    """Node 0."""

    _node_list: node_list.NodeList | None = None
    _looked_up: list[str] = field(default_factory=list)
    _changing: threading.Lock = field(default_factory=threading.Lock)  # the list
    _why_not: str = ""  # the start ends by the fault of a node

    def __post_init__(self) -> None:
        self._acceptor = Acceptor(self.options.key, self.options.silence_s, self._welcome)

    def gather(self) -> list[node_list.Member]:
        """Wait for all nodes; these are all, node 0 included. Raises SpecError."""
        try:
            return self.watch(self._gather)
        except SpecError as error:
            self.refuse(str(error), error.exit_code)
            raise

    def refuse(self, why: str, code: int) -> None:
        """Tell those that have come that the job cannot start."""
        for each in self._node_list.members if self._node_list else ():
            if each.connection is not None:
                each.connection.settimeout(_FLUSH_SECONDS)
                with contextlib.suppress(OSError):
                    say(each.connection, "refused", why=why, code=code)

    def late(self) -> str:
        """See Rendezvous."""
        if self._node_list is None:
            host, addresses = self.options.host, self._looked_up
            found = f"is {', '.join(addresses)} here, no address of this host" if addresses else "is unknown"
            if addresses == [host]:
                found = "is no address of this host"
            return (
                f"node 0 cannot listen at {self.options.endpoint}: {host} {found}; --rendezvous must name node 0 "
                "by an address at which the others reach it."
            )
        point, seconds = self.options.endpoint, self.options.wait_s
        return node_list.late(self._node_list.missing, self.options.count, point, seconds, self._acceptor.strangers)

    def waits_for(self) -> str:
        """See Rendezvous."""
        if self._node_list is None:
            return f"node 0 waits until {self.options.host} is the name of this host."
        return f"node 0 waits at {self.options.endpoint} for {node_list.nodes(self._node_list.missing)}."

    def _gather(self) -> list[node_list.Member]:
        listener, address = self._listen()
        own = node_list.Member(socket.gethostname(), self.address_for_ranks(address), self.options.slots)
        self._node_list = found = node_list.NodeList(self.options.count, own_version(), own)
        threading.Thread(target=self._acceptor.serve, args=(listener,), daemon=True).start()
        while True:
            with self._changing:
                if self._why_not:
                    raise SpecError(self._why_not)
                found.forget_gone()
                if not found.missing:
                    listener.shutdown(socket.SHUT_RDWR)
                    listener.close()
                    return found.members
            time.sleep(_LOOK_SECONDS)

    def _listen(self) -> tuple[socket.socket, str]:
        """At the first address of the name that is this host's: a name may be known later than we start."""
        while True:
            self._looked_up = self.look_up()
            here = environment.local_addresses()
            for address in (each for each in self._looked_up if each.lower() in here):
                try:
                    listener = socket.create_server((address, self.options.port), family=_family(address), backlog=512)
                    return listener, address
                except OSError as error:
                    raise SpecError(
                        f"node 0 cannot listen at {self.options.endpoint}: {error.strerror}; another program may "
                        "have the port: give all nodes another one in --rendezvous."
                    ) from error
            time.sleep(_AGAIN_SECONDS)

    def _welcome(self, made: socket.socket, greeting: Message) -> None:
        assert self._node_list is not None
        with self._changing:
            try:
                self._node_list.join(greeting, made)
            except node_list.NodeListError as error:
                say(made, "refused", why=str(error), code=CANNOT_START)
                self._why_not = self._why_not or (str(error) if error.ends_the_start else "")
                raise


@dataclass
class RendezvousClient(Rendezvous):
    """A node that comes to node 0."""

    _last: str = "it was not looked for yet"  # why it was not reached; "" once it was
    _refusals: int = 0

    def dial(self) -> tuple[socket.socket, str, Message]:
        """Come to node 0, and wait with it for the others. Raises SpecError.

        Returns the connection, our own address, and the order to start.
        """
        return self.watch(self._dial)

    def late(self) -> str:
        """See Rendezvous."""
        who = f"node {self.options.number}"
        if self._last:
            return (
                f"{who} did not reach node 0 at {self.options.endpoint} within {self.options.wait_s:g} s: "
                f"{self._last}; look at node 0's log, and at --rendezvous."
            )
        return f"{who} reached node 0, but the job did not start within {self.limit_s():g} s: see node 0's log."

    def limit_s(self) -> float:
        """See Rendezvous. A node that has reached node 0 waits for its word, which names those that are missing."""
        return self.options.wait_s if self._last else 2 * self.options.wait_s + _LATER_SECONDS

    def waits_for(self) -> str:
        """See Rendezvous."""
        who, last = f"node {self.options.number}", f" ({self._last})" if self._last else ""
        return f"{who} waits for the start by node 0 at {self.options.endpoint}{last}."

    def _dial(self) -> tuple[socket.socket, str, Message]:
        while True:
            found = self.look_up()
            if not found:
                self._last = f"{self.options.host} is no name that this host knows"
            for address in found:
                try:
                    return self._join(address)
                except SpecError:
                    raise
                except TimeoutError:
                    self._last = f"{address}: it does not answer"
                except (OSError, KeyError, TypeError, ValueError) as error:
                    why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
                    self._last = f"{address}: {why}" if self._last else f"node 0 answered, then disconnected: {why}"
            time.sleep(_AGAIN_SECONDS)

    def _join(self, address: str) -> tuple[socket.socket, str, Message]:
        made = self._connect(address)
        self._last = ""
        number, count, slots = self.options.number, self.options.count, self.options.slots
        try:
            address = self.address_for_ranks(str(made.getsockname()[0]).partition("%")[0])
            about = {"node": number, "count": count, "slots": slots, "address": address}
            say(made, "greeting", **about_this_host(), **about)
            while (message := hear(made))["kind"] != "start":
                if message["kind"] == "refused":
                    raise SpecError(str(message["why"]), exit_code=int(message["code"]))
                if message["kind"] == "ending":
                    why = f"somebody ended the launcher of node 0 by {message['why']}."
                    raise SpecError(why, exit_code=int(message["code"]))
        except BaseException:
            made.close()
            raise
        return made, address, message

    def _connect(self, address: str) -> socket.socket:
        try:
            return connect((address, self.options.port), self.options.key, self.options.silence_s)
        except OtherProgramError:
            raise SpecError(
                f"another program answers at {self.options.endpoint} ({address}), no launcher of this release: "
                "--rendezvous must name node 0 and a free port there."
            ) from None
        except ProofError:
            self._refusals += 1
            if self._refusals < _REFUSALS:
                raise ConnectionError("it has another key") from None
            raise SpecError(
                f"node {self.options.number} and node 0 at {self.options.endpoint} have different keys: "
                "--key-file must hold the same one on all nodes."
            ) from None


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
