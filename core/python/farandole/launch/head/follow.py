"""Follows the cluster while an elastic job runs: adds hosts that a source lists, and lets others go.

One thread, that of the supervisor, whose loop calls `act`. discovery/host_states.py and joining_host.py decide; this
file acts. If a host cannot join, the user gets one sentence, and the job and the other hosts go on.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from farandole._start import frames
from farandole.launch.discovery.host_query import HostQuery, QueryFailure, ReportedFailures
from farandole.launch.discovery.host_states import HostStates
from farandole.launch.discovery.source import Source
from farandole.launch.head import ssh
from farandole.launch.head.address_search import AssemblyError, Send
from farandole.launch.head.agent_link import Link
from farandole.launch.head.joining_host import JoiningHost, Present
from farandole.launch.hosts import HostList, HostSlots

if TYPE_CHECKING:
    from farandole.launch.head.cluster import Cluster

_LATE_SECONDS = 30.0 + ssh.CONNECT_SECONDS  # for an answer of a newcomer, or of others about it


@dataclass(eq=False)
class Follower:
    """Follows the hosts of one job. Call `attach` before its loop runs."""

    open: Callable[[str], Link]  # the connection to the agent of a host; raises OSError
    environment_of: Callable[[str], dict[str, str]]  # the ranks of a host
    unified: Callable[[Sequence[HostSlots]], list[HostSlots]]  # each machine under one name as far as known
    source: Source
    environment: Mapping[str, str]  # of the processes that answer for the source
    host_states: HostStates
    version: str
    refused: Mapping[str, str]  # hosts without which the job has started, and why
    _present: dict[Link, tuple[int, Present]] = field(default_factory=dict)
    _joining: dict[Link, JoiningHost] = field(default_factory=dict)  # hosts on their way into the job
    _probed: Link | None = None
    _leaving: dict[Link, float] = field(default_factory=dict)  # to the pause after which each may come back, in seconds
    _dismissed: set[Link] = field(default_factory=set)
    _reported: set[int] = field(default_factory=set)  # ranks, to leave
    _kept: set[str] = field(default_factory=set)  # hosts of which the user was told that they must stay for now
    _reported_failures: ReportedFailures = field(default_factory=ReportedFailures)
    _next_number: int = 0
    _is_over: bool = False
    _now: float = 0.0

    def attach(self, cluster: Cluster, selector: selectors.BaseSelector) -> None:
        """Work for this supervisor."""
        self._cluster = cluster
        self.query = HostQuery(self.source, self.environment, selector, self._on_answer)

    # The supervisor's calls

    def act(self, now: float) -> None:
        """Do what is due."""
        if not self._cluster.assembly.is_complete or self._is_over:
            return
        self._now = now
        if self._cluster.ending.began_at is not None or not self._cluster.running:
            self._end()
            return
        if not self._next_number:
            self._begin()
        self.query.tick(now)
        self._call()
        self._look_after_joining()
        self._fit()
        self._dismiss()

    def next_due(self, now: float) -> float | None:
        """Seconds until `act` must be called."""
        if not self._cluster.assembly.is_complete or self._is_over:
            return None
        times = [self.query.next_due(now)]
        times += [max(0.0, joining.since + _LATE_SECONDS - now) for joining in self._joining.values()]
        if self._room(now) > 0:
            times.append(self.host_states.next_due(now))
        return min((each for each in times if each is not None), default=None)

    def on_message(self, link: Link, message: frames.Message) -> None:
        """An agent's answer, after the start of the job."""
        if message["kind"] == "leaving" and link in self._present:
            self._let_go(link, pause_s=self.host_states.backoff.most_s)
            return
        joining = self._joining.get(link)
        if joining is not None and not joining.why:
            joining.since = self._now
            self._hear_joining(link, joining, message)
        elif link in self._present and self._probed is not None:
            number = self._present[link][0]
            self._continue_probe(lambda joining: joining.on_message(number, message))

    def link_ended(self, link: Link, now: float) -> bool:
        """The connection to a host is gone. Returns whether nothing of the job was there."""
        self._now = now
        if (joining := self._joining.pop(link, None)) is not None:
            self._end_probe(link)
            if not self._is_over:
                self._tell(self.host_states.failed(link.name, joining.why or self._why_ended(link), now))
            return True
        number, _ = self._present.pop(link, (-1, None))
        self._continue_probe(lambda joining: joining.forget(number))
        self._dismissed.discard(link)
        if self._cluster.slots is not None:
            self._cluster.slots.close(link.name)
        if link in self._leaving:
            self.host_states.gone(link.name, now, self._leaving.pop(link))
        else:
            self.host_states.lost(link.name, now)
        return False

    # Sources

    def _on_answer(self, answer: HostList | QueryFailure) -> None:
        if isinstance(answer, QueryFailure):
            if self._reported_failures.is_news(answer):
                self._tell(f"{answer.sentence}; the job goes on with the hosts that it has.")
            return
        self._reported_failures.all_well(self._now)
        self.host_states.listed(self.unified(answer.slots))

    # Hosts that come

    def _begin(self) -> None:
        """All hosts of the start have connected, except those that are lost already."""
        assembly, links = self._cluster.assembly, {link.name: link for link in self._cluster.links}
        there = [HostSlots(plan.name, len(plan.placements)) for plan in assembly.hosts if plan.name in links]
        self.host_states.start(there, self._now)
        for name, why in self.refused.items():
            self.host_states.failed(name, why, self._now)  # the user was told
        for number, (plan, address) in enumerate(zip(assembly.hosts, assembly.addresses, strict=True)):
            if plan.name in links:
                identity = str((plan.greeting or {})["identity"])
                self._present[links[plan.name]] = number, Present(plan.name, address, identity)
        self._next_number = len(assembly.hosts)

    def _room(self, now: float) -> int:
        """The number of slots for which ranks may still start."""
        slots = self._cluster.slots
        return slots.max_np - slots.usable(now) if slots is not None and slots.may_start else 0

    def _call(self) -> None:
        room = self._room(self._now)
        for name in self.host_states.due(self._now, room) if room > 0 else ():
            try:
                link = self.open(name)
            except OSError as error:
                self._tell(self.host_states.failed(name, f"{name}: {error.filename} cannot be started", self._now))
                continue
            self._cluster.links.append(link)
            assembly = self._cluster.assembly
            key, interfaces = assembly.probe_key, assembly.interfaces
            self._joining[link] = JoiningHost(self._next_number, name, self.version, key, interfaces, since=self._now)
            self._next_number += 1

    def _look_after_joining(self) -> None:
        if self._probed is None:
            link = next((link for link, joining in self._joining.items() if joining.waits), None)
            if link is not None:
                self._probed = link
                others = {number: host for other, (number, host) in self._present.items() if other not in self._leaving}
                self._continue_probe(lambda joining: joining.probe(others))
        for link, joining in self._joining.items():
            if joining.address and self._cluster.call >= 0:
                link.send_call(self._cluster.call)
            if not joining.why and self._now - joining.since >= _LATE_SECONDS:
                self._turn_away(link, f"{link.name} was not ready within {_LATE_SECONDS:.0f} s")

    def _hear_joining(self, link: Link, joining: JoiningHost, message: frames.Message) -> None:
        try:
            if message["kind"] == "greeting":
                joining.greet(message)
            elif message["kind"] == "started":
                self._take_in(link, joining)
            elif message["kind"] == "refused":
                self._turn_away(link, f"{link.name}: {str(message['why']).rstrip('.')}")
            elif link is self._probed:
                self._continue_probe(lambda joining: joining.on_message(joining.number, message))
        except AssemblyError as error:
            self._turn_away(link, str(error).rstrip("."))
        except (KeyError, TypeError, ValueError):
            self._turn_away(link, f"{link.name}: its agent's message {message['kind']!r} is invalid")

    def _continue_probe(self, step: Callable[[JoiningHost], list[Send]]) -> None:
        """The next step of the checks; the order to start after the last one."""
        link = self._probed
        joining = None if link is None else self._joining.get(link)
        if link is None or joining is None or joining.why:
            return
        try:
            self._send(step(joining))
        except AssemblyError as error:
            self._turn_away(link, str(error).rstrip("."))
            return
        except (KeyError, TypeError, ValueError):
            self._turn_away(link, f"{link.name}: an answer about it is invalid")
            return
        if joining.address:
            self._end_probe(link)
            order = self._cluster.assembly.order(joining.address, self.environment_of(link.name), [])
            link.say("start", **order)

    def _send(self, sends: Sequence[Send]) -> None:
        links = {number: link for link, (number, _) in self._present.items()}
        links |= {joining.number: link for link, joining in self._joining.items()}
        for number, kind, content in sends:
            if number in links:
                links[number].say(kind, **content)

    def _end_probe(self, link: Link) -> None:
        if link is self._probed:
            self._probed = None
            for other in self._present:
                other.say("quiet")

    def _take_in(self, link: Link, joining: JoiningHost) -> None:
        del self._joining[link]
        self._end_probe(link)
        self._present[link] = joining.number, Present(link.name, joining.address, joining.identity)
        self.host_states.arrived(link.name, self._now)
        self._tell(f"{link.name} ({joining.address}) has joined the job's hosts.")

    def _turn_away(self, link: Link, why: str) -> None:
        """Refuse a host that has no ranks yet."""
        self._joining[link].why = why
        self._end_probe(link)
        link.kill()

    def _why_ended(self, link: Link) -> str:
        text = link.stderr.decode(errors="replace")
        if not link.greeted:
            return self._cluster.why_no_agent(link, text)
        return f"{link.name} was lost while it joined{ssh.last_line(text)}"

    # Hosts that go

    def _fit(self) -> None:
        """Set the number of slots of each host to that of the source."""
        slots = self._cluster.slots
        assert slots is not None
        links = {link.name: link for link in self._present if link not in self._leaving}
        for host in self.host_states.wanted():
            if (link := links.get(host.host)) is None:
                continue
            taken = slots.taken(host.host)
            ranks = taken[host.count :]
            if ranks and not self._may_leave(ranks, host.host):
                slots.resize(host.host, len(taken), self._now)  # no others come in their place
                continue
            if host.count:
                self._ask_to_leave(link, slots.resize(host.host, host.count, self._now))
            else:
                self._tell(f"{host.host} is no longer among the hosts of {self.source.name}, so its ranks leave.")
                self._let_go(link)

    def _may_leave(self, ranks: Sequence[int], host: str) -> bool:
        """Return whether ranks may leave: all are inside elastic.run, and enough would be left."""
        lease = self._cluster.lease
        if lease is None or not lease.is_training:
            return False
        if lease.can_spare(self._reported.union(ranks)):
            self._kept.discard(host)
            return True
        if host not in self._kept:
            self._kept.add(host)
            who = f"{len(ranks)} rank{'s' if len(ranks) > 1 else ''} of {host}"
            self._tell(
                f"{self.source.name} no longer has slots for {who}, but --min-np is {lease.min_np}; they stay until "
                "others have joined."
            )
        return False

    def _let_go(self, link: Link, pause_s: float = 0.0) -> None:
        assert self._cluster.slots is not None
        self._leaving[link] = pause_s
        self.host_states.let_go(link.name, self._now)
        self._cluster.slots.close(link.name)
        number, _ = self._present[link]
        self._continue_probe(lambda joining: joining.forget(number))
        if not pause_s:
            self._ask_to_leave(link, self._cluster.ranks_of(link))

    def _ask_to_leave(self, link: Link, ranks: Sequence[int]) -> None:
        if ranks:
            self._reported.update(ranks)
            link.say("leave", ranks=list(ranks))

    def _dismiss(self) -> None:
        """Let agents go whose last rank has left."""
        for link in self._leaving:
            if link not in self._dismissed and not self._cluster.ranks_of(link):
                self._dismissed.add(link)
                link.say("dismiss")

    def _end(self) -> None:
        """The job ends: no agent waits for more ranks."""
        self._is_over = True
        self.query.close()
        for link in self._joining:
            link.kill()
        for link in self._present:
            link.say("dismiss")

    def _tell(self, sentence: str) -> None:
        if sentence:
            self._cluster.relay.say(f"farandole: {sentence}")
