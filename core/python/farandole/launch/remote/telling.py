"""Ends of ranks as messages: an agent tells its launcher, which tells the other agents."""

from __future__ import annotations

from typing import Any

from farandole._start.frames import Message
from farandole._start.rank_records import Parting
from farandole.launch import verdict
from farandole.launch.placement import Placement


def told(death: verdict.Death, joins: int) -> dict[str, Any]:
    """The content of the message about a death. Times travel as distances, since hosts' clocks differ."""
    said = death.said
    return {
        "rank": death.placement.rank,
        "pid": death.pid,
        "code": death.code,
        "ran_s": death.ran_s,
        "asked": death.asked,
        "joins": joins,
        "said": said and [said.raised, max(0.0, death.seen_at - said.at_s), said.blamed, said.mistaken, said.awaited],
        "lost": death.lost,
        "recorded": death.recorded,
    }


def heard(
    message: Message, placement: Placement, now: float, teller: str = "", ended_by: tuple[str, int] | None = None
) -> verdict.Death:
    """A death that was told. `ended_by`: the signal that ended the teller, if one did, and the exit code of that.

    Raises KeyError, TypeError or ValueError for what is no such message.
    """
    said = None
    if message["said"] is not None:
        raised, ago_s, blamed, mistaken, awaited = message["said"]
        said = Parting(bool(raised), now - float(ago_s), blamed, bool(mistaken), bool(awaited))
    code, asked, lost = int(message["code"]), bool(message["asked"]), str(message["lost"])
    if asked and ended_by is not None:  # the rank has only obeyed
        code, asked, said, lost = ended_by[1], False, None, f"somebody ended {teller} by {ended_by[0]}"
    pid, joined = int(message["pid"]), int(message["joins"]) > 0
    recorded = str(message["recorded"])
    return verdict.Death(placement, pid, code, now, float(message["ran_s"]), asked, joined, said, lost, recorded)
