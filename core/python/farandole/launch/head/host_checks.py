"""`farandole doctor -H`: examines all hosts at the same time through their agents.

    launcher                     agent
                                 greeting
    clock                        its wall clock, at once
    examine                      findings and versions, after seconds: check_process.py
    listen, then probe           the addresses of others that it reached: probe.py

All hosts that answer are asked to listen once each host has greeted or failed. `HostChecks` decides, and is pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from farandole._start.frames import Message
from farandole.launch.head import address_search
from farandole.launch.head.address_search import Send
from farandole.observe.doctor.finding import FAIL, OK, WARN, Finding
from farandole.observe.doctor.hosts import Clock, HostFacts, Versions

GREETING_SECONDS = 10.0
_TRIALS = 4  # of the core, each of `limit_s` at most
_OTHERWISE_SECONDS = 30.0  # for all but the trials


@dataclass
class HostChecks:
    """The state of one. Times are of one steady clock, but for `wall_s`, the time of day."""

    hosts: Sequence[HostFacts]
    environments: Sequence[Mapping[str, str]]  # in which the ranks of each host would start
    limit_s: float
    probe_key: str  # hexadecimal
    interfaces: Sequence[str] = ()
    _clock_asked: dict[int, tuple[float, float]] = field(default_factory=dict)
    _search: address_search.Search | None = None

    def on_message(self, index: int, message: Message, now: float, wall_s: float) -> list[Send]:
        """An agent's answer. Returns what to send next. One that makes no sense is a problem of its host."""
        if self.hosts[index].problem:
            return []
        try:
            return self._take(index, message, now, wall_s)
        except (KeyError, TypeError, ValueError):
            return self.fail(index, f"its agent's message {message['kind']!r} makes no sense", "install one farandole")

    def _take(self, index: int, message: Message, now: float, wall_s: float) -> list[Send]:
        host, kind = self.hosts[index], message["kind"]
        if kind == "greeting":
            self._greeted(host, message)
            self._clock_asked[index] = now, wall_s
            return [(index, "clock", {}), *self._search_if_all_are_here()]
        if kind == "clock":
            asked_at, asked_wall_s = self._clock_asked[index]
            half_s = (now - asked_at) / 2
            host.clock = Clock(float(message["time_s"]) - asked_wall_s - half_s, half_s)
            return [(index, "check", {"environment": self.environments[index], "limit_s": self.limit_s})]
        if kind in ("listening", "reached") and self._search is not None:
            sends = self._search.on_message(index, message)
            host.reached = self._search.reached.get(index)
            return sends
        if kind == "checked" and "error" in message:
            return self.fail(index, str(message["error"]), f"run farandole doctor on {host.name}")
        if kind == "checked":
            host.versions = _versions(message["versions"])
            host.findings = [_finding(each) for each in message["findings"]]
        return []

    def _greeted(self, host: HostFacts, greeting: Message) -> None:
        host.offered = address_search.offered_by(greeting, self.interfaces)
        host.python, host.version = str(greeting["python"]), str(greeting["version"])
        host.identity = str(greeting["identity"])

    def fail(self, index: int, problem: str, remedy: str) -> list[Send]:
        """A host cannot be examined, or not to the end; the others no longer wait for it."""
        host = self.hosts[index]
        host.problem, host.remedy = host.problem or problem, host.remedy if host.problem else remedy
        return self._search_if_all_are_here() if self._search is None else self._search.forget(index)

    def _search_if_all_are_here(self) -> list[Send]:
        if not all(host.answered or host.problem for host in self.hosts):
            return []
        there = {number: list(host.offered) for number, host in enumerate(self.hosts) if not host.problem}
        self._search = address_search.Search(self.probe_key, there)
        return self._search.begin()

    @property
    def is_complete(self) -> bool:
        """Returns whether no host is waited for."""
        return all(
            host.problem or (host.findings is not None and host.reached is not None and host.clock is not None)
            for host in self.hosts
        )

    @property
    def most_seconds(self) -> float:
        """An checks takes no longer."""
        return GREETING_SECONDS + _TRIALS * self.limit_s + _OTHERWISE_SECONDS

    def late(self, passed_s: float) -> list[int]:
        """The hosts to give up, `passed_s` after the start."""
        return [
            number
            for number, host in enumerate(self.hosts)
            if not host.problem
            and (passed_s >= self.most_seconds or (passed_s >= GREETING_SECONDS and not host.answered))
        ]


def _finding(content: Mapping[str, Any]) -> Finding:
    """The finding that an agent sent. Raises KeyError, TypeError or ValueError."""
    level, check, text, mend = (str(content[name]) for name in ("level", "check", "text", "mend"))
    if level not in (OK, WARN, FAIL):
        raise ValueError(level)
    return Finding(level, check, text, mend)


def _versions(content: Mapping[str, Any]) -> Versions:
    own, others, wheels = (
        {str(name): str(version) for name, version in dict(content[part]).items()}
        for part in ("own", "others", "wheels")
    )
    return Versions(own, others, wheels, str(content["platform"]))
