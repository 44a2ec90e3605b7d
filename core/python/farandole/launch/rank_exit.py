"""The end of a rank: the known facts, and their form as a message from an agent to its launcher. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from farandole._start.rank_records import Parting
from farandole.launch.placement import Placement

LOST = 255  # exit code of a rank whose host was lost: that of ssh


@dataclass(frozen=True)
class Death:
    """The end of one rank. `code` is its exit code, or minus the signal that killed it."""

    placement: Placement
    pid: int
    code: int
    seen_at: float
    ran_s: float
    asked: bool = False  # the launcher had told it to end
    joined: bool = True  # it was in a world of several ranks once
    report: Parting | None = None
    lost: str = ""  # what became of the connection to its host, where that ended before the rank
    recorded: str = ""  # what its flight recorder says that it did last, for one that a signal has killed
    orphaned_s: float = 30.0  # after so long a lost one ends by itself

    @property
    def failed_at(self) -> float:
        """When its program ended: it may have said so before its process did."""
        return self.seen_at if self.report is None else min(self.report.at_s, self.seen_at)

    @property
    def failed_after_s(self) -> float:
        """The same, since its start."""
        return max(0.0, self.ran_s - (self.seen_at - self.failed_at))

    @property
    def failed(self) -> bool:
        """Return whether it ended by itself with an error."""
        return self.code != 0 and not self.asked


def to_message(death: Death, joins: int) -> dict[str, Any]:
    """The content of the message about a death: an agent tells its launcher, which tells the other agents.

    Times are sent as ages, because the hosts' clocks differ.
    """
    report = death.report
    return {
        "rank": death.placement.rank,
        "pid": death.pid,
        "code": death.code,
        "ran_s": death.ran_s,
        "asked": death.asked,
        "joins": joins,
        "report": report
        and [report.raised, max(0.0, death.seen_at - report.at_s), report.culprit, report.mistaken, report.awaited],
        "lost": death.lost,
        "recorded": death.recorded,
    }


def from_message(
    message: Mapping[str, Any],
    placement: Placement,
    now: float,
    agent: str = "",
    ended_by: tuple[str, int] | None = None,
) -> Death:
    """The end that a message tells of. `ended_by`: the signal that ended the agent, if one did, and its exit code.

    Raises KeyError, TypeError or ValueError for what is no such message.
    """
    report = None
    if message["report"] is not None:
        raised, ago_s, culprit, mistaken, awaited = message["report"]
        report = Parting(bool(raised), now - float(ago_s), culprit, bool(mistaken), bool(awaited))
    code, asked, lost = int(message["code"]), bool(message["asked"]), str(message["lost"])
    if asked and ended_by is not None:  # the rank has only obeyed
        code, asked, report, lost = ended_by[1], False, None, f"somebody ended {agent} by {ended_by[0]}"
    pid, joined = int(message["pid"]), int(message["joins"]) > 0
    recorded = str(message["recorded"])
    return Death(placement, pid, code, now, float(message["ran_s"]), asked, joined, report, lost, recorded)
