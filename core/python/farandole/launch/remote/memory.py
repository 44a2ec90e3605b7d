"""An agent's memory of its part of a job, from which the next launcher learns all that it must know. Pure.

It notes what passes through the agent: ranks that start and end, their words about the membership, the answers to
them. A decision of a launcher that has reached no agent has not happened; one that has reached any counts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any

from farandole._start.membership_channel import Message
from farandole.launch.job import Placement


@dataclass
class _Known:
    """A rank of this host."""

    placement: Placement
    pid: int
    began_at: float
    hello: Message | None = None
    is_paused: bool = False
    has_left: bool = False  # it said that it leaves, as it was told to
    asks: Message | None = None  # a report or a wish to join that is not answered


@dataclass
class JobMemory:
    """All ranks that this host has ever had."""

    ranks: dict[int, _Known] = field(default_factory=dict)
    has_begun: bool = False  # some rank was inside of elastic.run
    epoch: Message | None = None  # the last that was decided, as far as this host knows
    _deaths: list[tuple[Message, float]] = field(default_factory=list)

    def started(self, placement: Placement, pid: int, now: float) -> None:
        """A rank runs here."""
        self.ranks[placement.rank] = _Known(placement, pid, now)

    def died(self, told: Message, now: float) -> None:
        """A rank has ended; `told` is the message about it. A rank that could not be started has a death as well."""
        self._deaths.append((told, now))
        if (known := self.ranks.get(told["rank"])) is not None:
            known.asks = None

    def heard(self, rank: int, message: Message) -> None:
        """A rank has said this. Messages without sense are noted by nobody."""
        known, kind = self.ranks.get(rank), message.get("kind")
        if known is None:
            return
        if kind == "hello":
            known.hello = message
        elif kind in ("begin", "pause"):
            known.is_paused = kind == "pause"
            self.has_begun = self.has_begun or kind == "begin"
        elif kind in ("report", "join"):
            known.asks = message
            known.has_left = bool(message.get("leaving"))

    def told(self, rank: int, message: Message) -> None:
        """A rank gets this answer."""
        if message["kind"] == "epoch" and (self.epoch is None or message["number"] > self.epoch["number"]):
            self.epoch = message
        if message["kind"] in ("epoch", "end", "over") and rank in self.ranks:
            self.ranks[rank].asks = None

    def asking(self) -> Collection[int]:
        """The ranks that wait for a decision."""
        return [rank for rank, known in self.ranks.items() if known.asks is not None]

    def state(self, now: float) -> dict[str, Any]:
        """The content of the message for a new launcher. Times are ages in seconds."""
        return {
            "ranks": [
                {
                    "placement": asdict(known.placement),
                    "pid": known.pid,
                    "age_s": now - known.began_at,
                    "hello": known.hello,
                    "is_paused": known.is_paused,
                    "has_left": known.has_left,
                    "asks": known.asks,
                }
                for known in self.ranks.values()
            ],
            "deaths": [{"told": told, "ago_s": now - at} for told, at in self._deaths],
            "has_begun": self.has_begun,
            "epoch": self.epoch,
        }
