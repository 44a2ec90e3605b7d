"""The loop of one node around its ranks, with what the launchers of the other nodes tell of theirs.

Each launcher tells of the ends of its ranks, and node 0 passes that on, so that all nodes know all ends and judge
alike. A launcher stays until it knows the ends of all ranks of the job, or that it cannot learn of them.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field
from typing import Any

from farandole._start.proof import job_key
from farandole._start.rank_records import RankRecords, make_memory
from farandole.launch import environment, local, verdict
from farandole.launch.description import Job
from farandole.launch.inspection.aftermath import Flights
from farandole.launch.inspection.sight import Sight
from farandole.launch.local import path_for_ranks
from farandole.launch.nodes.channel import Channel
from farandole.launch.nodes.roll import Gathered
from farandole.launch.placement import Placement
from farandole.launch.remote import frames
from farandole.launch.remote.telling import TellingSupervisor, heard

_FLUSH_SECONDS = 2.0  # for the last words to other nodes


@dataclass(kw_only=True)
class NodeSupervisor(TellingSupervisor):
    """Supervises the ranks of this node. `hosts`: of each rank, as the relay's options have it."""

    number: int
    hosts: dict[int, str]
    channels: dict[int, Channel] = field(default_factory=dict)  # by node: node 0 has all, the others that to node 0
    _nodes: dict[int, int] = field(default_factory=dict)  # of each rank
    _elsewhere: dict[int, Placement] = field(default_factory=dict)  # ranks of other nodes that have not ended
    _ended_by: dict[int, tuple[str, int]] = field(default_factory=dict)  # node -> a signal to its launcher
    _held: list[socket.socket] = field(default_factory=list)  # ports for rank 0
    _began_at: float = field(default_factory=time.monotonic)
    _all_ended_at: float | None = None

    def start(self, job: Job, gathered: Gathered, key: bytes) -> None:
        """Start the ranks of this node. Raises CommandError, OSError, OutputError. REQUIRES one thread."""
        placements = gathered.placements()
        for node, ranks in enumerate(placements):
            for each in ranks:
                self._nodes[each.rank], self.hosts[each.rank] = node, each.host
                if node != self.number:
                    self._elsewhere[each.rank] = each
        own = placements[self.number]
        memory = make_memory(own[0].size)  # open as long as this process lives, as is the key
        self.records = RankRecords(memory, own[0].size)
        self.relay.open_logs(each.rank for each in own)
        descriptor = local.make_key(job_key(key, gathered.salt))
        if self.options.verbose:
            self.relay.say(_summary(gathered, placements))
        self.flights = Flights(job.base, job_key(key, gathered.salt))
        cores = environment.available_cores()
        for each in own:
            variables = environment.for_rank(
                job.base,
                each,
                store=gathered.store,
                key_file=path_for_ranks(descriptor),
                status_file=path_for_ranks(memory),
                address=gathered.members[self.number].address,
                master=(gathered.members[0].address, gathered.master_port),
                cores=cores,
                start_timeout_s=job.start_timeout_s,
            )
            self.add(local.start(job.command, each, variables, bind_to=job.hosts.bind_to))

    def listen(self, channels: dict[int, Channel], held: list[socket.socket]) -> None:
        """Hear the other launchers from now on."""
        self.channels, self._held, self._began_at = channels, held, time.monotonic()
        for each in channels.values():
            each.on_message, each.on_end = self._on_message, self._on_end

    # The other nodes

    def _on_message(self, channel: Channel, message: frames.Message) -> None:
        """Node 0 believes a node about itself; the others believe node 0 about all."""
        kind = message["kind"]
        node = channel.node if self.number == 0 else int(message["node"])
        if kind == "sight":
            self.hear_sight(f"node {node}", message, self._running())
            return
        if kind == "death" and self._nodes.get(int(message["rank"])) == node:
            self._on_death(node, message)
        elif kind == "ending":
            self._ended_by[node] = str(message["why"]), int(message["code"])
        elif kind == "failed":
            self._lose(node, str(message["why"]), int(message["code"]))
        self._tell(message, but=node)

    def _on_death(self, node: int, message: frames.Message) -> None:
        now = time.monotonic()
        placement = self._elsewhere.pop(int(message["rank"]), None)
        if placement is None:
            return
        death = heard(message, placement, now, f"the launcher of node {node}", self._ended_by.get(node))
        self.records.end(placement.rank, death.pid, death.code, int(message["joins"]))
        super().note_death(death, self._running())

    def _on_end(self, channel: Channel) -> None:
        node = channel.node if self.number == 0 else 0
        self._lose(node, f"the connection to its launcher ended: {channel.why}", verdict.LOST)
        self._tell(
            {"kind": "failed", "node": node, "why": f"node 0 lost node {node}: {channel.why}", "code": 255}, node
        )
        if self.number != 0:
            self._elsewhere.clear()  # node 0 would have told

    def take_sight(self, sight: Sight, now: float) -> None:
        """See LocalSupervisor. Node 0 hears those of all."""
        if self.number == 0:
            self.say_of_sight("node 0", sight, now, self._running())
        else:
            super().take_sight(sight, now)

    def _lose(self, node: int, why: str, code: int) -> None:
        """The ranks of a node are gone, or nothing more is known of them."""
        now = time.monotonic()
        for rank in [each for each in self._elsewhere if self._nodes[each] == node]:
            placement = self._elsewhere.pop(rank)
            self.records.end(rank, 0, code)
            death = verdict.Death(placement, 0, code, now, now - self._began_at, joined=True, lost=why)
            super().note_death(death, self._running())

    def _tell(self, message: dict[str, Any], but: int) -> None:
        """Node 0 tells all others. `but`: the node that it is about."""
        if self.number == 0:
            for node, channel in self.channels.items():
                if node != but:
                    channel.say(**{**message, "node": but})

    def say(self, kind: str, **content: Any) -> None:
        """Tell all nodes that we have a channel to."""
        for channel in self.channels.values():
            channel.say(kind, node=self.number, **content)

    # Our own ranks

    def note_death(self, death: verdict.Death, others: int) -> None:
        """See Supervisor."""
        self.tell_death(death)
        super().note_death(death, self._running())

    # The loop

    def _running(self) -> int:
        return len(self.alive) + len(self._elsewhere)

    @property
    def anything_left(self) -> bool:
        """Returns whether a rank may be alive anywhere, or another node has not heard of one's end."""
        if super().anything_left or self._elsewhere:
            return True
        if self._all_ended_at is None:
            self._all_ended_at = time.monotonic()
        waits = time.monotonic() - self._all_ended_at < _FLUSH_SECONDS
        return waits and any(each.is_open and not each.is_flushed for each in self.channels.values())

    def next_due(self, now: float) -> float | None:
        """See Supervisor."""
        if self._all_ended_at is None:
            return super().next_due(now)
        return max(0.0, self._all_ended_at + _FLUSH_SECONDS - now)

    def kill(self) -> None:
        """See Supervisor. The other nodes end theirs, so nothing is worth waiting for once ours are gone."""
        super().kill()
        if not self.alive:
            self._elsewhere.clear()

    def where_output_is(self, rank: int) -> str:
        """See Supervisor."""
        node = self._nodes.get(rank, self.number)
        return "" if node == self.number else f"the output of node {node}"


def _summary(gathered: Gathered, placements: list[list[Placement]]) -> str:
    lines = [
        f"farandole: node {node}, {member.host} ({member.address}): ranks {ranks[0].rank} to {ranks[-1].rank}"
        for node, (member, ranks) in enumerate(zip(gathered.members, placements, strict=True))
    ]
    return "\n".join(lines)
