"""Ends of ranks, told to launchers elsewhere: by an agent to its launcher, by a node's launcher to the other nodes."""

from __future__ import annotations

import signal
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from farandole._start.rank_records import Parting
from farandole.launch import verdict
from farandole.launch.inspection.sight import Sight
from farandole.launch.placement import Placement
from farandole.launch.processes import LocalSupervisor
from farandole.launch.remote.frames import Message
from farandole.launch.supervise import ENDING


@dataclass(kw_only=True)
class TellingSupervisor(LocalSupervisor):
    """Supervises ranks of this host for a job that has ranks elsewhere."""

    @abstractmethod
    def say(self, kind: str, **content: Any) -> None:
        """Send a message to those that must know."""

    def tell_death(self, death: verdict.Death) -> None:
        """Tell of a rank of this host. Times travel as distances, since hosts' clocks differ."""
        said = death.said
        told = None
        if said is not None:
            told = [said.raised, max(0.0, death.seen_at - said.at_s), said.blamed, said.mistaken, said.awaited]
        content: dict[str, Any] = {"rank": death.placement.rank, "pid": death.pid, "code": death.code}
        joins = self.records.joins(death.placement.rank)
        self.say(
            "death", **content, ran_s=death.ran_s, asked=death.asked, joins=joins, said=told, recorded=death.recorded
        )

    def take_sight(self, sight: Sight, now: float) -> None:
        """See LocalSupervisor. Only the launcher of all hosts can tell who waits for whom."""
        self.say("sight", **sight.message(round(now * 1e9)))

    def on_signal(self, signum: int) -> None:
        """See Supervisor. The user's own signal is for the launcher, which passes it on, so this one is for us."""
        if signum in ENDING:
            self.say("ending", why=signal.Signals(signum).name, code=128 + signum)
        super().on_signal(signum)

    def launcher_gone(self) -> None:
        """See Supervisor: of our two processes the outer one is gone."""
        self.say("ending", why="SIGKILL", code=128 + signal.SIGKILL)
        super().launcher_gone()


def heard(
    message: Message, placement: Placement, now: float, teller: str, ended_by: tuple[str, int] | None
) -> verdict.Death:
    """A death that was told. `ended_by`: the signal that ended the teller, if one did, and the exit code of that.

    Raises KeyError, TypeError or ValueError for what is no such message.
    """
    said = None
    if message["said"] is not None:
        raised, ago_s, blamed, mistaken, awaited = message["said"]
        said = Parting(bool(raised), now - float(ago_s), blamed, bool(mistaken), bool(awaited))
    code, asked, lost = int(message["code"]), bool(message["asked"]), ""
    if asked and ended_by is not None:  # the rank has only obeyed
        code, asked, said, lost = ended_by[1], False, None, f"somebody ended {teller} by {ended_by[0]}"
    pid, joined = int(message["pid"]), int(message["joins"]) > 0
    recorded = str(message["recorded"])
    return verdict.Death(placement, pid, code, now, float(message["ran_s"]), asked, joined, said, lost, recorded)
