"""A launcher adopts a job: what it says to which agent when. Pure. tenure.py is the other end.

claim      the hosts one after the other, always in this order: of two launchers one gets the first
adopt      all that are there, once each has been claimed or is known to be gone
state      what each of them remembers of the job
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from farandole.launch.job import Placement
from farandole.launch.remote.assembly import AssemblyError, Send
from farandole.launch.remote.frames import Message
from farandole.launch.remote.recall import HostState, parse


@dataclass
class AdoptedHost:
    """A host of the job, and how far it is."""

    name: str
    placements: Sequence[Placement]
    is_there: bool = False  # its agent has greeted
    is_asked: bool = False
    is_claimed: bool = False
    gone: str = ""  # why there is no agent
    state: HostState | None = None


@dataclass
class Adoption:
    """Takes the place of an Assembly where the ranks run already."""

    hosts: Sequence[AdoptedHost]
    version: str
    is_hopeless: bool = False  # nothing is left of the job
    _adopting: bool = False
    _told: list[str] = field(default_factory=list)
    all_have_greeted: bool = False  # no agent gets a function of ours

    @property
    def is_complete(self) -> bool:
        """Returns whether all agents that are left are this launcher's."""
        return self._adopting and all(host.gone or host.state is not None for host in self.hosts)

    @property
    def states(self) -> list[HostState]:
        """Of the hosts that are left."""
        return [host.state for host in self.hosts if host.state is not None]

    def summary(self) -> str:
        """Nothing is said here, since the launcher says more."""
        return ""

    def waiting_for(self) -> list[str]:
        """The hosts that have not answered the last question."""
        late = [host for host in self.hosts if not host.gone and host.state is None]
        return [host.name for host in late if not host.is_claimed] or [host.name for host in late]

    def on_message(self, index: int, message: Message) -> list[Send]:
        """An agent's answer. Returns what to send next. Raises AssemblyError."""
        host, kind = self.hosts[index], message["kind"]
        if kind == "adoptable":
            host.is_there = True
        elif kind == "claimed":
            host.is_claimed = True
        elif kind == "state" and self._adopting:
            host.state = parse(message)
            return []
        elif kind == "refused":
            raise AssemblyError(f"{host.name}: {message['why']}.")
        else:
            raise AssemblyError(f"{host.name}: its agent says {kind!r}, which this launcher does not know.")
        return self._next()

    def lose(self, index: int, why: str) -> list[Send]:
        """There is no agent on this host. Raises AssemblyError where none is left."""
        self.hosts[index].gone = why
        if all(host.gone for host in self.hosts):
            self.is_hopeless = True
            raise AssemblyError(f"nothing is left of this job: {'; '.join(host.gone for host in self.hosts)}.")
        return [] if self._adopting else self._next()

    def _next(self) -> list[Send]:
        for number, host in enumerate(self.hosts):
            if host.gone or host.is_claimed:
                continue
            if host.is_there and not host.is_asked:
                host.is_asked = True
                return [(number, "claim", {})]
            return []
        self._adopting = True
        return [(number, "adopt", {}) for number, host in enumerate(self.hosts) if not host.gone]
