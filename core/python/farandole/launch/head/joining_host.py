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
from farandole.launch.head import address_search
from farandole.launch.head.address_search import Send
from farandole.launch.head.assembly import check_distinct, check_version


@dataclass(frozen=True)
class Present:
    """A host of the job."""

    name: str
    address: str
    identity: str


@dataclass
class JoiningHost:
    """One newcomer, which is examined alone. Errors are AssemblyError."""

    number: int
    name: str
    version: str
    probe_key: str
    interfaces: Sequence[str] = ()
    since: float = 0.0  # of the last progress
    why: str = ""  # it is turned away
    greeting: Message | None = None
    offered: list[str] = field(default_factory=list)
    address: str = ""  # once it is chosen
    others: dict[int, Present] = field(default_factory=dict)  # that take part in the checks
    _search: address_search.Search | None = None

    def greet(self, greeting: Message) -> None:
        """Its agent is there. Raises AssemblyError."""
        check_version(self.name, greeting, self.version)
        self.offered, self.greeting = address_search.offered_by(greeting, self.interfaces), greeting

    @property
    def waits(self) -> bool:
        """Return whether it can be examined, and has not been."""
        return self.greeting is not None and not self.address and not self.why

    @property
    def identity(self) -> str:
        """The identity of its machine, once the agent has sent its greeting."""
        return "" if self.greeting is None else str(self.greeting["identity"])

    def probe(self, others: Mapping[int, Present]) -> list[Send]:
        """Begin with the hosts that are there now. Raises AssemblyError."""
        self.others = dict(others)
        check_distinct([*((other.name, other.identity) for other in others.values()), (self.name, self.identity)])
        names = {number: other.name for number, other in others.items()} | {self.number: self.name}
        offered = {number: [other.address] for number, other in others.items()} | {self.number: self.offered}
        self._search = address_search.Search(self.probe_key, names, offered, self.number)
        return self._search.begin()

    def on_message(self, number: int, message: Message) -> list[Send]:
        """An answer of the newcomer or of another host. Raises AssemblyError, and errors of a message without sense."""
        return (
            [] if self._search is None else self._choose_at_end(self._search, self._search.on_message(number, message))
        )

    def forget(self, number: int) -> list[Send]:
        """Another host is lost, or goes. Raises AssemblyError."""
        if self.others.pop(number, None) is None or self._search is None:
            return []
        return self._choose_at_end(self._search, self._search.forget(number))

    def _choose_at_end(self, search: address_search.Search, sends: list[Send]) -> list[Send]:
        if self.address or not search.is_complete:
            return sends
        self.address = search.choose()[self.number]
        return [(number, "quiet", {}) for number in self.others]
