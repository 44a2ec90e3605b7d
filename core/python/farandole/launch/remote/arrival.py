"""A host that comes while the job runs: from its agent's greeting to the order to start. Pure.

It is examined as the hosts of the start were: the same Farandole, no second name of a machine, an address that all
others reach. Numbers are those of `follow.py`, which gives each agent its own.

    the newcomer                         each other host
    greeting
    listen   at its addresses            at the address that the job has chosen for it
    probe    all others                  the newcomer
    start    without ranks               quiet: stop listening
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from farandole._start.frames import Message
from farandole.launch.remote import reach
from farandole.launch.remote.assembly import AssemblyError, Send, check_version, twins


@dataclass(frozen=True)
class Present:
    """A host of the job."""

    name: str
    address: str
    identity: str


@dataclass
class Arrival:
    """One newcomer, which is examined alone. Errors are AssemblyError, with a sentence without its point."""

    number: int
    name: str
    version: str
    probe_key: str
    interfaces: Sequence[str] = ()
    greeting: Message | None = None
    offered: list[str] = field(default_factory=list)
    address: str = ""  # once it is chosen
    others: dict[int, Present] = field(default_factory=dict)  # that take part in the examination
    _ports: dict[int, dict[str, int]] = field(default_factory=dict)
    _reached: dict[int, set[tuple[int, str]]] = field(default_factory=dict)
    _step: str = ""

    def greet(self, greeting: Message) -> None:
        """Its agent is there. Raises AssemblyError."""
        check_version(self.name, greeting, self.version)
        found = [reach.Address(str(name), str(address)) for name, address in greeting["addresses"]]
        self.offered, self.greeting = reach.candidates(found, self.interfaces), greeting

    @property
    def identity(self) -> str:
        """Of its machine, once it has greeted."""
        return "" if self.greeting is None else str(self.greeting["identity"])

    def examine(self, others: Mapping[int, Present]) -> list[Send]:
        """Begin with the hosts that are there now. Raises AssemblyError."""
        self.others = dict(others)
        for other in self.others.values():
            if other.identity == self.identity:
                raise AssemblyError(twins(other.name, self.name))
        self._step = "listening"
        key = self.probe_key
        sends: list[Send] = [
            (number, "listen", {"host": number, "addresses": [other.address], "probe_key": key})
            for number, other in self.others.items()
        ]
        return [*sends, (self.number, "listen", {"host": self.number, "addresses": self.offered, "probe_key": key})]

    def on_message(self, number: int, message: Message) -> list[Send]:
        """An answer of the newcomer or of another host. Raises AssemblyError, and errors of a message without sense."""
        if message["kind"] == "listening" == self._step:
            self._ports[number] = {str(address): int(port) for address, port in dict(message["ports"]).items()}
        elif message["kind"] == "reached" == self._step:
            self._reached[number] = {(int(to), str(address)) for to, address in message["reached"]}
        return self._next()

    def forget(self, number: int) -> list[Send]:
        """Another host is lost, or goes. Raises AssemblyError."""
        if self.others.pop(number, None) is None:
            return []
        self._ports.pop(number, None)
        self._reached.pop(number, None)
        return self._next()

    def _next(self) -> list[Send]:
        everybody = {*self.others, self.number}
        if self._step == "listening" and everybody <= self._ports.keys():
            self._step = "reached"
            return self._probe()
        if self._step == "reached" and everybody <= self._reached.keys():
            self._step = "chosen"
            self._choose()
            return [(number, "quiet", {}) for number in self.others]
        return []

    def _probe(self) -> list[Send]:
        theirs = [(number, a, port) for number in self.others for a, port in self._ports[number].items()]
        ours = [(self.number, a, port) for a, port in self._ports[self.number].items()]
        sends: list[Send] = [(number, "probe", {"targets": ours}) for number in self.others]
        return [(self.number, "probe", {"targets": theirs}), *sends]

    def _choose(self) -> None:
        for number, other in self.others.items():
            if (number, other.address) not in self._reached[self.number]:
                raise AssemblyError(
                    f"{self.name} cannot connect to {other.name} ({other.address}), where the job expects it; look for "
                    "a firewall between them, or name a network that they share with --network-interfaces"
                )
        good = reach.shared(self.number, self.offered, self._reached)
        if not good:
            names = {number: other.name for number, other in self.others.items()}
            order = [self.number, *self.others]
            reached = {order.index(each): self._as(order, self._reached[each]) for each in order}
            why = reach.why_none(0, [self.name, *names.values()], self.offered, reached)
            raise AssemblyError("; ".join(why).rstrip("."))
        self.address = good[0]

    @staticmethod
    def _as(order: Sequence[int], reached: set[tuple[int, str]]) -> set[tuple[int, str]]:
        """The same with places in `order` for numbers."""
        return {(order.index(to), address) for to, address in reached if to in order}
