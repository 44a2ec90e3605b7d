"""Finds the addresses at which hosts reach each other, and chooses one for each host. Pure.

launcher    each host
listen      its ports: probe.py
probe       which addresses of others it has reached, once all listen
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from farandole._start.frames import Message

Reached = Mapping[int, Collection[tuple[int, str]]]
"""Host -> the hosts and addresses that it has reached."""
Send = tuple[int, str, dict[str, Any]]
"""A host's number, a message's kind, and its content."""


class AssemblyError(ValueError):
    """The job cannot start; the message is one sentence for the user. `hosts`: without which it perhaps could."""

    def __init__(self, message: str, hosts: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.hosts = hosts


@dataclass(frozen=True)
class Address:
    """An address of a host, and the interface that has it."""

    interface: str
    address: str  # "10.0.0.7", "2001:db8::7"


@dataclass
class Search:
    """The addresses of each host that other hosts have reached. Hosts have numbers."""

    key: str  # hexadecimal
    names: Mapping[int, str]
    offered: dict[int, list[str]]  # the addresses of each host
    newcomer: int | None = None  # the only one from and to which connections are tried
    reached: dict[int, set[tuple[int, str]]] = field(default_factory=dict)
    _ports: dict[int, dict[str, int]] = field(default_factory=dict)
    _probes: bool = False

    def begin(self) -> list[Send]:
        """Ask all to listen."""
        return [
            (number, "listen", {"host": number, "addresses": addresses, "probe_key": self.key})
            for number, addresses in self.offered.items()
        ]

    def on_message(self, number: int, message: Message) -> list[Send]:
        """A host's answer; one that an earlier search asked for is passed over. Raises errors of what has no sense."""
        if message["kind"] == "listening":
            ports = {str(address): int(port) for address, port in dict(message["ports"]).items()}
            self._ports |= {} if self._probes else {number: ports}
        elif message["kind"] == "reached":
            found = {(int(to), str(address)) for to, address in message["reached"]}
            self.reached |= {number: found} if self._probes else {}
        return self._next()

    def forget(self, number: int) -> list[Send]:
        """A host is lost, or goes."""
        for each in (self.offered, self._ports, self.reached):
            each.pop(number, None)
        return self._next()

    @property
    def late(self) -> list[int]:
        """The hosts whose answer is awaited."""
        return [number for number in self.offered if number not in (self.reached if self._probes else self._ports)]

    @property
    def is_complete(self) -> bool:
        """Return whether all have tried the others' addresses."""
        return self._probes and not self.late

    def _next(self) -> list[Send]:
        if self._probes or self.late:
            return []
        self._probes = True
        return [(number, "probe", {"targets": self._targets(number)}) for number in self.offered]

    def _targets(self, number: int) -> list[tuple[int, str, int]]:
        others = self._others(number)
        return [(other, address, port) for other in others for address, port in self._ports[other].items()]

    def _others(self, number: int) -> list[int]:
        """The hosts to and from which connections of this host are tried."""
        return [other for other in self.offered if other != number and self.newcomer in (None, number, other)]

    def choose(self) -> dict[int, str]:
        """Choose for each host the first of its addresses that all others have reached. REQUIRES `is_complete`.

        Raises:
            AssemblyError: there is none for some host; to blame are those that do not reach it, if they are the fewer.
        """
        chosen = {}
        for number, offered in self.offered.items():
            reached = {other: self.reached[other] for other in self._others(number)}
            good = shared(number, offered, reached)
            if not good:
                deaf = _deaf(number, reached)
                to_blame = deaf if deaf and 2 * len(deaf) <= len(self.offered) else [number]
                why = "; ".join(why_none(number, self.names, offered, reached))
                raise AssemblyError(why, [self.names[each] for each in to_blame])
            chosen[number] = good[0]
        return chosen


def offered_by(greeting: Message, interfaces: Collection[str]) -> list[str]:
    """The addresses of an agent's greeting that other hosts may reach."""
    return candidates([Address(str(name), str(address)) for name, address in greeting["addresses"]], interfaces)


def candidates(found: Sequence[Address], interfaces: Collection[str] = ()) -> list[str]:
    """The addresses that other hosts may reach, those of `interfaces` only if some are named; IPv4 first.

    Loopback leads nowhere, and addresses of a cable (169.254.0.0/16, fe80::/10) need the name of an interface.
    """
    usable = []
    for each in found:
        number = ipaddress.ip_address(each.address)
        named = not interfaces or each.interface in interfaces
        if named and not (number.is_loopback or number.is_link_local or number.is_unspecified):
            usable.append((number.version, each.address))
    return [address for _, address in sorted(usable, key=lambda pair: pair[0])]


def shared(index: int, offered: Sequence[str], reached: Reached) -> list[str]:
    """The addresses offered by host `index` that every other host has reached."""
    others = [other for other in reached if other != index]
    return [each for each in offered if all((index, each) in reached[other] for other in others)]


def why_none(
    index: int, hosts: Sequence[str] | Mapping[int, str], offered: Sequence[str], reached: Reached
) -> tuple[str, str]:
    """The cause and the remedy where `shared` finds none."""
    name = hosts[index]
    if not offered:
        return f"{name} has no address for other hosts on these interfaces", "name others with --network-interfaces."
    deaf = [hosts[other] for other in _deaf(index, reached)]
    who = ", ".join(deaf[:4]) + (f" and {len(deaf) - 4} more" if len(deaf) > 4 else "")
    tried = ", ".join(offered)
    if deaf:
        remedy = "look for a firewall between them, or name a network that they share with --network-interfaces."
        return f"{who} cannot connect to {name} ({tried})", remedy
    return (
        f"no address of {name} ({tried}) is reached by all other hosts",
        "--network-interfaces names a network that is.",
    )


def _deaf(index: int, reached: Reached) -> list[int]:
    """The hosts that have reached no address of this one."""
    return [other for other in reached if other != index and not any(to == index for to, _ in reached[other])]
