"""The messages to the agents, from their greetings to the start of the ranks. Pure.

Each step waits for the answers of all hosts: greetings, listening ports, addresses that were reached; then the port of
rank 0's host; then the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from farandole._start.frames import Message
from farandole.launch.head import address_search
from farandole.launch.head.address_search import AssemblyError, Send
from farandole.launch.placement import Placement


@dataclass
class HostPlan:
    """A host of the job, and what its agent has said so far."""

    name: str
    placements: Sequence[Placement]
    address: str = ""  # where the others reach it, if that is known
    is_told_layout_only: bool = False  # its agent has the rest of the job from its own user
    greeting: Message | None = None
    started: bool = False

    @property
    def ranks(self) -> str:
        """Its ranks, which follow each other: "4-7"."""
        first, last = self.placements[0].rank, self.placements[-1].rank
        return str(first) if first == last else f"{first}-{last}"


_LOOPBACK = "127.0.0.1"


@dataclass
class Assembly:
    """The start of one job. `job`: what all agents are told about it; `probe_key`: hexadecimal."""

    hosts: Sequence[HostPlan]
    job: dict[str, Any]
    environments: Sequence[dict[str, str]]  # of each host
    version: str
    probe_key: str
    interfaces: Sequence[str] = ()
    layout: dict[str, Any] = field(default_factory=dict)  # of all ranks: all that some agents are told
    _search: address_search.Search | None = None  # for addresses
    _addresses: list[str] = field(default_factory=list)
    _master: dict[str, Any] = field(default_factory=dict)

    @property
    def addresses(self) -> list[str]:
        """The chosen address of each host, once it is known."""
        return self._addresses

    @property
    def all_have_greeted(self) -> bool:
        """Return whether each host has an agent of our version."""
        return all(host.greeting is not None for host in self.hosts)

    @property
    def is_complete(self) -> bool:
        """Return whether all ranks are started."""
        return all(host.started for host in self.hosts)

    def summary(self) -> str:
        """A line for each host of a job that has started."""
        lines = [
            f"farandole: {host.name} ({address}, {(host.greeting or {})['cores']} cores): ranks {host.ranks}"
            for host, address in zip(self.hosts, self._addresses, strict=True)
        ]
        return "\n".join(lines)

    def waiting_for(self) -> list[str]:
        """The hosts that have not answered the last question."""
        late = [host.name for host in self.hosts if host.greeting is None]
        if not late and self._search is not None:
            late = [self.hosts[number].name for number in self._search.late]
        return late or [host.name for host in self.hosts if not host.started]

    def on_message(self, index: int, message: Message) -> list[Send]:
        """An agent's answer. Returns what to send next. Raises AssemblyError."""
        host = self.hosts[index]
        kind = message["kind"]
        if kind == "greeting":
            return self._greeted(index, message)
        if kind in ("listening", "reached") and self._search is not None:
            sends = self._search.on_message(index, message)
            if not self._search.is_complete:
                return sends
            is_alone = len(self.hosts) == 1 and not self._search.offered[0]  # one host that has an agent all the same
            self._addresses = [_LOOPBACK] if is_alone else [*self._search.choose().values()]
            return self._reserve()
        if kind == "reserved":
            return self._start(message["store"], message["master_port"])
        if kind == "started":
            host.started = True
            return []
        if kind == "refused":
            raise AssemblyError(f"{host.name}: {message['why']}", [host.name])
        raise AssemblyError(f"{host.name}: its agent sent {kind!r}, which this launcher does not know.")

    def _greeted(self, index: int, greeting: Message) -> list[Send]:
        host = self.hosts[index]
        check_version(host.name, greeting, self.version)
        host.greeting = greeting
        if any(each.greeting is None for each in self.hosts):
            return []
        if all(each.address for each in self.hosts):
            self._addresses = [each.address for each in self.hosts]
            return self._reserve()
        greetings = {number: each.greeting or {} for number, each in enumerate(self.hosts)}
        check_distinct((self.hosts[number].name, each["identity"]) for number, each in greetings.items())
        names = {number: each.name for number, each in enumerate(self.hosts)}
        offered = {number: address_search.offered_by(each, self.interfaces) for number, each in greetings.items()}
        self._search = address_search.Search(self.probe_key, names, offered)
        return self._search.begin()

    def _reserve(self) -> list[Send]:
        return [(0, "reserve", {"address": self._addresses[0]})]

    def _start(self, store: str, master_port: int) -> list[Send]:
        self._master = {"store": store, "master_address": self._addresses[0], "master_port": master_port}
        return [(number, "start", self._order(number, host)) for number, host in enumerate(self.hosts)]

    def _order(self, number: int, host: HostPlan) -> dict[str, Any]:
        if host.is_told_layout_only:
            return {**self._master, **self.layout}
        return self.order(self._addresses[number], self.environments[number], host.placements)

    def order(self, address: str, environment: dict[str, str], placements: Sequence[Placement]) -> dict[str, Any]:
        """The content of the message that starts these ranks on a host with this address. REQUIRES the job's ports."""
        return {
            **self.job,
            **self._master,
            "address": address,
            "environment": environment,
            "placements": [vars(each) for each in placements],
        }


def check_version(name: str, greeting: Message, version: str) -> None:
    """Raise AssemblyError if that host has another version of Farandole."""
    if greeting["version"] != version:
        raise AssemblyError(
            f"{name} has farandole {greeting['version']}, this host {version}; install the same one there: "
            f"{greeting['python']} -m pip install farandole=={version}",
            [name],
        )


def check_distinct(identities: Iterable[tuple[str, str]]) -> None:
    """Raises AssemblyError where two names of hosts are of one machine."""
    seen: dict[str, str] = {}
    for name, identity in identities:
        other = seen.setdefault(identity, name)
        if other != name:
            raise AssemblyError(f"{other} and {name} are one machine; name it once, with all of its slots.", [name])
