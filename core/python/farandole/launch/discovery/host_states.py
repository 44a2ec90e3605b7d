"""The hosts of a running job: which to call, which to let go, and which to leave alone for a while. Pure.

    absent --call--> arriving --arrived--> present --let go--> leaving --gone--> absent
       ^                |                     |
       +----failed------+---------lost--------+      each time for longer: `Backoff`

A host goes, and its slots become fewer, only once two lists in a row say so: a file may be read while it is written.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from farandole.launch.hosts import HostSlots, name_of
from farandole.launch.rank_slots import Backoff

_MOST_ARRIVING = 16


class _State(enum.Enum):
    ABSENT = enum.auto()
    ARRIVING = enum.auto()
    PRESENT = enum.auto()
    LEAVING = enum.auto()


@dataclass
class _Host:
    name: str  # as ranks and agents have it
    slots: int = 0  # 0: it is not listed
    fewer: int | None = None  # that the last list has
    state: _State = _State.ABSENT
    failures: int = 0  # in a row
    since: float = 0.0  # in this state
    call_at: float = 0.0
    reported: str = ""  # the last sentence about it


@dataclass
class HostStates:
    """The states of a job's hosts. A host has the name under which it was first listed."""

    backoff: Backoff
    _hosts: dict[str, _Host] = field(default_factory=dict)

    def start(self, hosts: Sequence[HostSlots], now: float) -> None:
        """The job runs on these hosts."""
        for each in hosts:
            host = self._host(each.host)
            host.slots, host.state, host.since = each.count, _State.PRESENT, now

    def listed(self, hosts: Sequence[HostSlots]) -> None:
        """A list has come."""
        counts = {name_of(each.host): each.count for each in hosts}
        for each in hosts:
            self._host(each.host)
        for key, host in self._hosts.items():
            count = counts.get(key, 0)
            if count >= host.slots:
                host.slots, host.fewer = count, None
            elif host.fewer is None:
                host.fewer = count
            else:
                host.slots = max(count, host.fewer)
                host.fewer = count if count < host.slots else None

    def due(self, now: float, room: int) -> list[str]:
        """The hosts to call now, until they and those on their way fill `room` slots. They count as called."""
        arriving = [host.slots for host in self._hosts.values() if host.state is _State.ARRIVING]
        room, left, called = room - sum(arriving), _MOST_ARRIVING - len(arriving), list[str]()
        for host in self._hosts.values():
            if self._is_wanted(host) and host.call_at <= now and room > 0 and len(called) < left:
                host.state, host.since = _State.ARRIVING, now
                room -= host.slots
                called.append(host.name)
        return called

    def next_due(self, now: float) -> float | None:
        """Seconds until `due` may return hosts."""
        times = [host.call_at - now for host in self._hosts.values() if self._is_wanted(host)]
        return max(0.0, min(times)) if times else None

    def wanted(self) -> list[HostSlots]:
        """The hosts that are there, with the slots that they have now; 0: the host is to go."""
        return [HostSlots(host.name, host.slots) for host in self._hosts.values() if host.state is _State.PRESENT]

    def arrived(self, name: str, now: float) -> None:
        """The host can take ranks."""
        host = self._host(name)
        host.state, host.since, host.reported = _State.PRESENT, now, ""

    def failed(self, name: str, why: str, now: float) -> str:
        """The host could not be taken in. Returns the sentence for the user, "" where it was told before."""
        host = self._host(name)
        pause_s = self._pause(host, now)
        if why == host.reported:
            return ""
        host.reported = why
        return f"{why}; it is tried again in {pause_s:g} s, and then less often; the job goes on without it."

    def lost(self, name: str, now: float) -> None:
        """A host that was there is gone. One that was there for long is as good as new."""
        host = self._host(name)
        if host.state is _State.PRESENT and now - host.since > self.backoff.most_s:
            host.failures = 0
        self._pause(host, now)

    def let_go(self, name: str, now: float) -> None:
        """Its ranks are told to leave."""
        host = self._host(name)
        host.state, host.since = _State.LEAVING, now

    def gone(self, name: str, now: float, pause_s: float = 0.0) -> None:
        """A host that was to go is gone. It may come back after the pause."""
        host = self._host(name)
        host.state, host.since, host.call_at, host.failures = _State.ABSENT, now, now + pause_s, 0

    def _host(self, name: str) -> _Host:
        return self._hosts.setdefault(name_of(name), _Host(name))

    @staticmethod
    def _is_wanted(host: _Host) -> bool:
        return host.state is _State.ABSENT and host.slots > 0

    def _pause(self, host: _Host, now: float) -> float:
        host.failures += 1
        pause_s = self.backoff.pause_s(host.failures)
        host.state, host.since, host.call_at = _State.ABSENT, now, now + pause_s
        return pause_s
