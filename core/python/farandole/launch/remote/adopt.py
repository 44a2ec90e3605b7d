"""`farandole adopt`: a launcher takes over the ranks of one that has died."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from farandole.launch import environment, verdict
from farandole.launch.hosts import LOCAL_HOST
from farandole.launch.job import Placement
from farandole.launch.options import HostOptions
from farandole.launch.outlive import Outlive
from farandole.launch.relay import OutputOptions
from farandole.launch.remote import frames, recall, ssh
from farandole.launch.remote.adoption import AdoptedHost, Adoption
from farandole.launch.remote.agent import about_this_host
from farandole.launch.remote.assembly import Assembly, AssemblyError
from farandole.launch.remote.link import Link, start
from farandole.launch.remote.outlived import OutlivedSupervisor
from farandole.launch.remote.reconnect import NO_AGENT
from farandole.launch.remote.state_file import HostRecord, JobRecord, StateFile
from farandole.launch.remote.telling import heard
from farandole.launch.version import own_version

_ADOPTION = ("adoptable", "claimed", "refused", "state")


@dataclass(kw_only=True)
class AdoptingSupervisor(OutlivedSupervisor):
    """Finds the agents of a job, and leads it from there."""

    adoption: Adoption  # also in the place of the assembly
    _held: list[tuple[Link, frames.Message | frames.Output]] = field(default_factory=list)

    def on_frame(self, link: Link, frame: frames.Message | frames.Output) -> None:
        """See AgentsSupervisor. Frames of adopted agents wait until all are adopted."""
        is_answer = isinstance(frame, dict) and frame["kind"] in _ADOPTION
        if is_answer or self.adoption.is_complete or self._refused_at is not None:
            super().on_frame(link, frame)
        else:
            self._held.append((link, frame))

    def on_link_end(self, link: Link, now: float) -> None:
        """See AgentsSupervisor. A host without an agent is lost; the others are adopted without it."""
        if self.adoption.is_complete:
            super().on_link_end(link, now)
            return
        if self.told_to_end or self._refused_at is not None:
            return
        try:
            self._send(self.adoption.lose(self.links.index(link), self._why_gone(link)))
        except AssemblyError as error:
            self._refuse(str(error).rstrip("."), [link.name])
            return
        if self.adoption.is_complete:
            self._started_at = now
            self.all_started()

    def _why_gone(self, link: Link) -> str:
        text = link.stderr.decode(errors="replace")
        if link.code == NO_AGENT or link.greeted:
            return f"{link.name}{ssh.last_line(text) or ': its agent has ended'}"
        return self.why_no_agent(link, text)

    # The job as it is

    def all_started(self) -> None:
        """See ClusterSupervisor: all agents that are left are ours."""
        now, states = time.monotonic(), self.adoption.states
        self.lease, self.slots = self.record.elastic.for_ranks(
            [each for host in self.record.hosts for each in host.placements]
        )
        recall.restore(self.lease, states)
        if self.slots is not None:
            recall.restore_slots(self.slots, states, [host.name for host in self.adoption.hosts if host.gone])
        super().all_started()
        self._say_adopted()
        self._enter_ranks(now)
        self._enter_deaths(now)
        self._enter_lost_hosts(now)
        self.answer(recall.answer(self.lease, states, self._placements, now))
        held, self._held = self._held, []
        for link, frame in held:
            self.on_frame(link, frame)

    def _say_adopted(self) -> None:
        states = self.adoption.states
        names = ", ".join(host.name for host in self.adoption.hosts if not host.gone)
        alone_s = max(state.alone_s for state in states)
        count = sum(len(state.ranks) - len(state.deaths) for state in states)
        ranks = f"{count} ranks" if count != 1 else "1 rank"
        self.relay.say(f"farandole: adopted {ranks} on {names}, {alone_s:.1f} s after their launcher's last word.")
        for rank, size in (each for state in states for each in state.lost):
            self.relay.say(f"farandole: {size:,} bytes of rank {rank}'s output were dropped meanwhile.")

    def _enter_ranks(self, now: float) -> None:
        ages = [known.age_s for state in self.adoption.states for known in state.ranks]
        self._started_at = now - max(ages, default=0.0)
        for link, host in zip(self.links, self.adoption.hosts, strict=True):
            for known in host.state.ranks if host.state is not None else ():
                rank = known.placement.rank
                self._pids[rank] = known.pid
                if rank not in link.streams:
                    self._enter_newcomer(link, known.placement)

    def _enter_newcomer(self, link: Link, placement: Placement) -> None:
        self.relay.open_logs([placement.rank])
        if self.record.has_other_hosts:
            self.relay.options.hosts[placement.rank] = placement.host
        self._placements[placement.rank] = placement
        link.streams[placement.rank] = self.relay.add_remote(placement.rank)

    def _enter_deaths(self, now: float) -> None:
        """In their order. Those that the last launcher has seen, too, are decided again, alike."""
        found = [
            (ago_s, link, told)
            for link, host in zip(self.links, self.adoption.hosts, strict=True)
            for told, ago_s in (host.state.deaths if host.state is not None else ())
        ]
        for ago_s, link, told in sorted(found, key=lambda each: -each[0]):
            placement = self._placements.pop(int(told["rank"]), None)
            if placement is not None:
                death = heard(told, placement, now - ago_s, "its agent there", None)
                self._enter_death(death, link, int(told["joins"]))

    def _enter_lost_hosts(self, now: float) -> None:
        for link, host in zip(self.links, self.adoption.hosts, strict=True):
            for rank in [each for each in link.streams if host.gone and each in self._placements]:
                self._enter_death(self._lost(self._placements.pop(rank), now, host.gone), link, 0)
        assert self.lease is not None
        for rank in self.lease.members:
            if rank not in self._placements and not any(rank in link.streams for link in self.links):
                self.answer(self.lease.end(rank))  # a newcomer on a host that is lost

    def _lost(self, placement: Placement, now: float, why: str) -> verdict.Death:
        ran_s = now - self._started_at
        return verdict.Death(placement, 0, verdict.LOST, now, ran_s, joined=True, lost=why)

    def _enter_death(self, death: verdict.Death, link: Link, joins: int) -> None:
        assert self.lease is not None
        rank = death.placement.rank
        if rank in self.lease.members:
            self.note_death(death, len(self._placements))
        else:  # the job went on without it, before this launcher
            (self.survived if death.failed else self.deaths).append(death)
            if self.slots is not None:  # it has failed, or left as it was told to
                self.slots.lost(rank, time.monotonic())
            self.answer(self.lease.end(rank))
        for other in self.links:
            if other is not link:
                other.say("ended", rank=rank, pid=death.pid, code=death.code, joins=joins)

    def record_of_all(self) -> JobRecord:
        """See OutlivedSupervisor. This may be another machine than that of the last launcher."""
        hosts = [
            replace(each, is_local=link.is_local) for each, link in zip(self.record.hosts, self.links, strict=True)
        ]
        return replace(self.record, hosts=hosts)

    def conclude(self) -> int:
        """See Supervisor. The file stays where somebody else leads the job."""
        if self._announced or self.adoption.is_hopeless:
            return super().conclude()
        return super(OutlivedSupervisor, self).conclude()


def run(file: StateFile, record: JobRecord, base: Mapping[str, str], lifeline: int) -> int:
    """Adopt the job, run it to its end, and return its exit code. Raises OutputError and OSError."""
    settings = environment.settings(base)
    hosts = [AdoptedHost(each.name, each.placements) for each in record.hosts]
    adoption = Adoption(hosts, own_version())
    by_rank = {each.rank: each.host for host in record.hosts for each in host.placements}
    supervisor = AdoptingSupervisor(
        OutputOptions(
            prefix=record.output["prefix"],
            timestamp=record.output["timestamp"],
            directory=Path(record.output["directory"]) if record.output["directory"] else None,
            no_color=settings.no_color,
            force_color=settings.force_color,
            dumb_terminal=settings.dumb_terminal,
            verbose=record.output["verbose"],
            hosts=by_rank if record.has_other_hosts else {},
            continues_logs=True,
        ),
        record.grace_s,
        lifeline,
        assembly=cast(Assembly, adoption),  # it answers the same questions
        adoption=adoption,
        python=record.python,
        silence_s=environment.silence_s(base),
        outlive=Outlive(record.seconds, file.path),
        file=file,
        record=record,
    )
    supervisor.relay.open_logs(by_rank)
    identity = about_this_host()["identity"]
    for host in record.hosts:
        supervisor.add(_link(supervisor, host, record, host.identity == identity, base))
    return supervisor.run()


def _link(
    supervisor: AdoptingSupervisor, host: HostRecord, record: JobRecord, is_here: bool, base: Mapping[str, str]
) -> Link:
    """The way to the agent of this host. `is_here`: it is this machine, and has not been started again since."""
    key = Path(record.ssh_identity) if record.ssh_identity else None
    options = HostOptions(record.ssh_port, key, record.python, silence_s=supervisor.silence_s)
    is_local = is_here or (host.is_local and host.name == LOCAL_HOST)
    words = ssh.reach(host.name, is_local, options, record.ssh, (*ssh.RECONNECT, record.socket, host.boot_id))
    process = start(words, environment.without_outer_job(dict(base)))
    assert process.stdin is not None
    os.write(process.stdin.fileno(), record.key.encode() + b"\n")
    return Link(host.name, process, supervisor.selector, is_here, supervisor.on_frame)
