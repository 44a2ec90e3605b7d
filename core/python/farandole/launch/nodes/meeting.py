"""From the name of node 0 to the moment when all nodes know each other: node 0 listens there, the others come.

    node 0                                          node 1 ...
    looks its name up until it is its own           looks the name up until it is known
    listens there                                   connects until somebody answers
    <------------------- proof.py ------------------>
    <------------------- join: number, number of nodes, version, slots, address
    start: all members, rank 0's endpoint, salt ---->   or "refused" with a sentence
    closes the listener                             starts its ranks

Signals are blocked meanwhile, so that no thread and no handler is needed before ranks are forked: the loop looks for
those that wait.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from farandole._start.proof import Proof
from farandole.launch import environment, guard, local
from farandole.launch.nodes import channel as channels
from farandole.launch.nodes import roll
from farandole.launch.nodes.channel import Channel
from farandole.launch.nodes.options import NodeOptions
from farandole.launch.remote import frames, reach
from farandole.launch.version import own_version

CANNOT_START = 2
_TURN_SECONDS = 0.2
_AGAIN_SECONDS = 0.5  # between two looks at a name, or two tries of an address
_TELL_AFTER_SECONDS = 10.0  # a start that takes no longer needs no explanation
_FLUSH_SECONDS = 2.0
_MOST_GUESTS = 512  # that have not proved themselves
_LATER_SECONDS = 10.0
_REFUSALS = 2  # the first may be a node 0 that has just ended


class MeetingError(Exception):
    """The nodes do not meet; the message is one sentence for the user, "" if there is none to tell."""

    def __init__(self, message: str, exit_code: int = CANNOT_START) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass
class Meeting(ABC):
    """The loop of one node. `is_over`: the launcher's outer process has gone."""

    options: NodeOptions
    selector: selectors.BaseSelector
    is_over: Callable[[], bool]
    tell: Callable[[str], None]
    _began: float = field(default_factory=time.monotonic)
    _told: bool = False

    @abstractmethod
    def late(self) -> str:
        """The sentence for a start that takes too long."""

    @abstractmethod
    def waits_for(self) -> str:
        """The sentence about what is waited for."""

    def tick(self, now: float) -> None:  # noqa: B027  # only node 0 has something to do
        """Is called at each turn."""

    def limit_s(self) -> float:
        """How long the start may take."""
        return self.options.wait_s

    def await_(self, is_there: Callable[[], bool], seconds: float = float("inf")) -> None:
        """Turn the loop until something is there, for so long at most. Raises MeetingError."""
        until = time.monotonic() + seconds
        while not is_there() and (now := time.monotonic()) < until:
            for key, _ in self.selector.select(min(_TURN_SECONDS, until - now)):
                key.data()
            self.tick(now)
            self._look_for_an_end()

    def _look_for_an_end(self) -> None:
        if waiting := [each for each in signal.sigpending() if each in guard.ENDING]:
            name = signal.Signals(waiting[0]).name
            raise MeetingError(f"ended by {name} before all nodes had come.", 128 + waiting[0])
        if self.is_over():
            raise MeetingError("", 128 + signal.SIGKILL)
        waited_s = time.monotonic() - self._began
        if waited_s >= self.limit_s():
            raise MeetingError(self.late())
        if waited_s >= _TELL_AFTER_SECONDS and not self._told:
            self._told = True
            self.tell(self.waits_for())

    def look_up(self) -> list[str]:
        """The addresses of node 0's name, IPv4 first; none where it is not known, or not yet."""
        if ":" in self.options.host:
            return [self.options.host]
        found: list[str] = []

        def look() -> None:
            try:
                infos = socket.getaddrinfo(self.options.host, self.options.port, type=socket.SOCK_STREAM)
            except OSError:
                return
            found.extend(str(info[4][0]) for info in infos)

        thread = threading.Thread(target=look, name="farandole-lookup", daemon=True)  # nothing else can end it
        thread.start()
        self.await_(lambda: not thread.is_alive())
        thread.join()
        return sorted(dict.fromkeys(found), key=lambda address: ":" in address)

    def flush(self, those: Iterable[Channel]) -> None:
        """Let the kernel have what was said."""
        until = time.monotonic() + _FLUSH_SECONDS
        while any(each.is_open and not each.is_flushed for each in those) and time.monotonic() < until:
            for key, _ in self.selector.select(_TURN_SECONDS):
                key.data()

    def address_for_ranks(self, reached: str) -> str:
        """The address of this node's ranks: the one that leads to the meeting point, or of the chosen interfaces."""
        if not self.options.interfaces:
            return reached
        found = [reach.Address(*each) for each in environment.interface_addresses()]
        usable = reach.candidates(found, self.options.interfaces)
        if not usable:
            names = ",".join(self.options.interfaces)
            raise MeetingError(
                f"node {self.options.number} has no address on --network-interfaces {names}; `ip address` lists them."
            )
        return next((each for each in usable if (":" in each) == (":" in reached)), usable[0])


@dataclass
class MeetingPoint(Meeting):
    """Node 0."""

    guests: list[Channel] = field(default_factory=list)  # not all have joined
    _strangers: set[str] = field(default_factory=set)  # addresses that came with another key
    _roll: roll.Roll | None = None
    _error: MeetingError | None = None
    _looked_up: list[str] = field(default_factory=list)

    def gather(self) -> tuple[roll.Gathered, dict[int, Channel], list[socket.socket]]:
        """Wait for all nodes: what all know, the channels to them, and rank 0's ports, held. Raises MeetingError."""
        try:
            listener, address = self._listen()
            own = roll.Member(socket.gethostname(), self.address_for_ranks(address), self.options.slots)
            self._roll = roll.Roll(self.options.count, own_version(), own)
            self.selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
            try:
                self.await_(lambda: not self._missing() or self._error is not None)
            finally:
                self.selector.unregister(listener)
                listener.close()
            if self._error is not None:
                raise self._error
            return self._begin(own.address)
        except MeetingError as error:
            for each in self.guests:
                if each.proof.is_done:
                    each.say("refused", why=str(error), code=error.exit_code)
            self.flush(self.guests)
            raise

    def late(self) -> str:
        """See Meeting."""
        if self._roll is None:
            host, addresses = self.options.host, self._looked_up
            found = f"is {', '.join(addresses)} here, no address of this host" if addresses else "is unknown"
            if addresses == [host]:
                found = "is no address of this host"
            return (
                f"node 0 cannot listen at {self.options.meeting_point}: {host} {found}; --rendezvous must name node 0 "
                "by an address at which the others reach it."
            )
        point, seconds = self.options.meeting_point, self.options.wait_s
        return roll.late(self._missing(), self.options.count, point, seconds, self._strangers)

    def waits_for(self) -> str:
        """See Meeting."""
        if self._roll is None:
            return f"node 0 waits until {self.options.host} is the name of this host."
        return f"node 0 waits at {self.options.meeting_point} for {roll.nodes(self._missing())}."

    def tick(self, now: float) -> None:
        """Dismiss those that prove nothing."""
        for each in list(self.guests):
            each.tick(now)

    def _missing(self) -> list[int]:
        return self._roll.missing if self._roll else []

    def _listen(self) -> tuple[socket.socket, str]:
        """At the first address of the name that is this host's: a name may be known later than we start."""
        while True:
            self._looked_up = self.look_up()
            here = environment.local_addresses()
            for address in (each for each in self._looked_up if each.lower() in here):
                try:
                    return channels.listen(address, self.options.port), address
                except OSError as error:
                    raise MeetingError(
                        f"node 0 cannot listen at {self.options.meeting_point}: {error.strerror}; another program may "
                        "have the port: give all nodes another one in --rendezvous."
                    ) from error
            self.await_(lambda: False, _AGAIN_SECONDS)

    def _accept(self, listener: socket.socket) -> None:
        try:
            made, peer = listener.accept()
        except OSError:
            return
        made.setblocking(False)
        if sum(not each.proof.is_done for each in self.guests) >= _MOST_GUESTS:
            next(each for each in self.guests if not each.proof.is_done).end("too many came at once")
        proof = Proof(self.options.key, is_listener=True)
        guest = Channel(made, self.selector, proof, self._on_message, self._on_end, self.options.silence_s)
        guest.other_address = str(peer[0]).partition("%")[0]
        self.guests.append(guest)

    def _on_message(self, guest: Channel, message: frames.Message) -> None:
        assert self._roll is not None
        if message["kind"] != "join" or guest.node >= 0 or self._error is not None:
            return
        try:
            guest.node = self._roll.join(message)
        except roll.RollError as error:
            self._error = MeetingError(str(error))
        except roll.TwiceError as error:
            guest.say("refused", why=str(error), code=CANNOT_START)

    def _on_end(self, guest: Channel) -> None:
        self.guests.remove(guest)
        if guest.is_refused:
            self._strangers.add(guest.other_address)
        if guest.node >= 0 and self._roll is not None:
            self._roll.leave(guest.node)

    def _begin(self, address: str) -> tuple[roll.Gathered, dict[int, Channel], list[socket.socket]]:
        assert self._roll is not None
        for each in [guest for guest in self.guests if guest.node < 0]:
            each.end("all nodes have come")
        try:
            held, store, master_port = local.reserve_endpoints(address)
        except OSError as error:
            raise MeetingError(f"node 0 cannot listen at {address}: {error.strerror}.") from error
        gathered = roll.Gathered(self._roll.members, store, master_port, os.urandom(16))
        for each in self.guests:
            each.say("start", **gathered.message())
        return gathered, {each.node: each for each in self.guests}, held


@dataclass
class Guest(Meeting):
    """A node that comes to node 0."""

    _answer: dict[str, Any] | None = None
    _last: str = "it was not looked for yet"  # why it was not reached; "" once it was
    _refusals: int = 0

    def gather(self) -> tuple[roll.Gathered, dict[int, Channel], list[socket.socket]]:
        """Come to node 0, and wait with it for the others. Raises MeetingError."""
        while True:
            found = self.look_up()
            if not found:
                self._last = f"{self.options.host} is no name that this host knows"
            for address in found:
                if (channel := self._reach(address)) is not None and (gathered := self._join(channel)) is not None:
                    return gathered, {0: channel}, []
            self.await_(lambda: False, _AGAIN_SECONDS)

    def late(self) -> str:
        """See Meeting."""
        who = f"node {self.options.number}"
        if self._last:
            return (
                f"{who} did not reach node 0 at {self.options.meeting_point} within {self.options.wait_s:g} s: "
                f"{self._last}; look at node 0's log, and at --rendezvous."
            )
        return f"{who} reached node 0, and the job did not start within {self.limit_s():g} s: see node 0's log."

    def limit_s(self) -> float:
        """See Meeting. A node that has reached node 0 waits for its word, which names those that are missing."""
        return self.options.wait_s if self._last else 2 * self.options.wait_s + _LATER_SECONDS

    def waits_for(self) -> str:
        """See Meeting."""
        who, last = f"node {self.options.number}", f" ({self._last})" if self._last else ""
        return f"{who} waits for the start by node 0 at {self.options.meeting_point}{last}."

    def _reach(self, address: str) -> Channel | None:
        """A channel with both proofs; None where there is none now."""
        try:
            channel = channels.connect(
                address,
                self.options.port,
                self.selector,
                self.options.key,
                self._on_message,
                self.options.silence_s,
            )
        except OSError as error:
            self._last = f"{address}: {error.strerror}"
            return None

        def is_decided() -> bool:
            channel.tick(time.monotonic())
            return not channel.is_open or channel.proof.is_done

        self.await_(is_decided)
        if channel.is_open:
            return channel
        self._last = f"{address}: {channel.why}"
        self._refusals += channel.is_refused
        if channel.is_other_program:
            raise MeetingError(
                f"another program answers at {self.options.meeting_point} ({address}), no launcher of this release: "
                "--rendezvous must name node 0 and a free port there."
            )
        if self._refusals >= _REFUSALS:
            raise MeetingError(
                f"node {self.options.number} and node 0 at {self.options.meeting_point} have different keys: "
                "--key-file must hold the same one on all nodes."
            )
        return None

    def _join(self, channel: Channel) -> roll.Gathered | None:
        self._last, self._answer = "", None
        about = roll.Member(socket.gethostname(), self.address_for_ranks(channel.own_address), self.options.slots)
        number, count = self.options.number, self.options.count
        channel.say("join", node=number, count=count, version=own_version(), **vars(about))
        self.await_(lambda: self._answer is not None or not channel.is_open)
        if self._answer is None:
            self._last = f"node 0 was there and went: {channel.why}"
            return None
        if self._answer["kind"] == "refused":
            raise MeetingError(str(self._answer["why"]), int(self._answer["code"]))
        return roll.Gathered.read(self._answer)

    def _on_message(self, _channel: Channel, message: frames.Message) -> None:
        if message["kind"] in ("start", "refused") and self._answer is None:
            self._answer = message
