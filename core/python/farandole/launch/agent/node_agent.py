"""The agent of a node that has dialled in: what its ranks run, and where their output goes, is known here."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

from farandole._start import frames
from farandole._start.proof import job_key
from farandole.launch import rank_exit
from farandole.launch.agent.host_agent import Agent
from farandole.launch.events import JobEnded
from farandole.launch.placement import Placement
from farandole.launch.spec import SpecError

# Nothing vouches for messages after the proof, so none can make us run a program.
_BELIEVED = ("tell", "beat", "kill")


@dataclass(kw_only=True)
class NodeAgent(Agent):
    """Shows the output of its ranks, and judges with what node 0 tells of the ranks elsewhere.

    `own`: what the agents of ssh hear from the launcher at the start.
    """

    number: int
    own: dict[str, Any]
    key: bytes
    _nodes: dict[int, int] = field(default_factory=dict)  # of each rank
    _elsewhere: dict[int, Placement] = field(default_factory=dict)  # ranks of other nodes that have not ended
    _node_0_ended_by: tuple[str, int] | None = None  # a signal to its launcher, and the exit code of that
    _refused: JobEnded | None = None
    _began_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.supervisor.where_output_is = self._where_output_is

    # Node 0

    def obey(self, message: frames.Message) -> None:
        """See Agent."""
        kind = message["kind"]
        if kind == "start" and not self._started:
            self.start_all(message)
        elif kind == "ended":
            placement = self._elsewhere.pop(int(message["rank"]), None)
            if placement is not None:
                super().obey(message)
                self.supervisor.note_death(rank_exit.from_message(message, placement, time.monotonic()))
        elif kind == "ending":
            self._node_0_ended_by = str(message["why"]), int(message["code"])
        elif kind == "refused":
            self._refused = JobEnded(int(message["code"]), (str(message["why"]),), is_refused=True)
            self.supervisor.launcher_gone()
        elif kind in _BELIEVED:
            super().obey(message)

    def hear_launcher(self) -> None:
        """See Agent."""
        try:
            super().hear_launcher()
        except (KeyError, TypeError, ValueError):  # a message that makes no sense
            self.supervisor.selector.unregister(self.commands)
            self.lose_launcher()

    def lose_launcher(self) -> None:
        """See Agent. The ranks of node 0 are lost, and nothing more is known of the others."""
        self._patience_s = math.inf
        now, lost = time.monotonic(), [each for each in self._elsewhere.values() if self._nodes[each.rank] == 0]
        self._elsewhere.clear()
        why = "the connection to its launcher ended"
        for each in lost:
            self.children.records.end(each.rank, 0, rank_exit.LOST)
            death = rank_exit.Death(each, 0, rank_exit.LOST, now, now - self._began_at, lost=why)
            self.supervisor.note_death(death)

    # The ranks

    def start_all(self, message: frames.Message) -> None:
        """See Agent."""
        nodes = [[Placement(**each) for each in ranks] for ranks in message["nodes"]]
        for node, ranks in enumerate(nodes):
            for each in ranks:
                self._nodes[each.rank], self.supervisor.options.hosts[each.rank] = node, each.host
                if node != self.number:
                    self._elsewhere[each.rank] = each
        ranks = nodes[self.number]
        if self.supervisor.options.verbose:
            first, last = ranks[0].rank, ranks[-1].rank
            self.supervisor.relay.say(f"farandole: node {self.number} ({self.own['address']}): ranks {first} to {last}")
        try:
            self.supervisor.relay.open_logs(each.rank for each in ranks)
        except SpecError as error:
            self.refuse(str(error), error.exit_code)
            return
        layout = {"placements": message["nodes"][self.number], "capacity": ranks[0].size}
        key = job_key(self.key, bytes.fromhex(message["salt"]))
        super().start_all({**message, **self.own, **layout, "key": key.hex()})

    def refuse(self, why: str, code: int) -> None:
        """See Agent. Node 0 tells the others."""
        super().refuse(why, code)
        self._started = True
        self._elsewhere.clear()
        self._refused = JobEnded(code, (f"node {self.number}: {why}",), is_refused=True)

    @property
    def running(self) -> int:
        """See Ranks. Of all nodes."""
        return super().running + len(self._elsewhere)

    @property
    def anything_left(self) -> bool:
        """Return whether a rank may be alive anywhere."""
        return super().anything_left or bool(self._elsewhere)

    def kill(self) -> None:
        """See Ranks. The other nodes end theirs, so nothing is worth waiting for once ours are gone."""
        super().kill()
        if not self.children.alive:
            self._elsewhere.clear()

    def _where_output_is(self, rank: int) -> str:
        node = self._nodes.get(rank, self.number)
        return "" if node == self.number else f"the output of node {node}"

    def conclude(self) -> JobEnded | None:
        """See Supervisor. Our user is told here."""
        super().conclude()
        if self._refused is not None:
            return self._refused
        if self._node_0_ended_by is not None and self.supervisor.ending.exit_code is not None:
            why, code = self._node_0_ended_by
            return JobEnded(code, (f"somebody ended the launcher of node 0 by {why}.",))
        return self.supervisor.decide()
