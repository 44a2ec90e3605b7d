"""A snapshot of the ranks of one host, and the message that sends it to another host. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any

from farandole.observe.diagnosis import Rank
from farandole.observe.processes import Activity
from farandole.observe.records import Link, Operation, Recording, State
from farandole.observe.slow_links import Links
from farandole.observe.step_times import StepTimes

_SENT_OPERATIONS = 32  # operations of a stuck rank that are sent


@dataclass(frozen=True)
class Snapshot:
    """The ranks of one host, by rank, or in an elastic job by member number.

    `links` lead to ranks of other hosts. `stuck` says what the ranks do if no operation has ended for a while.
    `warn_after_s` is FARANDOLE_WARN_AFTER of the ranks.
    """

    step_times: Mapping[int, StepTimes]
    links: Links = field(default_factory=dict)
    stuck: tuple[Rank, ...] = ()
    warn_after_s: float = 0.0  # 0 if not set
    epoch: int = 0  # in an elastic job

    def message(self, now_ns: int) -> dict[str, Any]:
        """Return the snapshot as a message for a launcher on another host."""
        return {
            "step_times": [[rank, *astuple(times)] for rank, times in self.step_times.items()],
            "links": [[rank, *astuple(link)] for (rank, _), link in self.links.items()],
            "stuck": [_packed(rank) for rank in self.stuck],
            "now_ns": now_ns,
            "warn_after_s": self.warn_after_s,
            "epoch": self.epoch,
        }


def snapshot_of(message: Mapping[str, Any], now_ns: int) -> Snapshot:
    """Parse the message of a snapshot. Raises KeyError, TypeError or ValueError for anything else."""
    step_times = {int(rank): StepTimes(int(steps), *map(float, rest)) for rank, steps, *rest in message["step_times"]}
    links = {(int(rank), int(counts[0])): Link(*map(int, counts)) for rank, *counts in message["links"]}
    ahead_ns = now_ns - message["now_ns"]  # hosts' clocks differ
    stuck = tuple(_unpacked(each, ahead_ns) for each in message["stuck"])
    return Snapshot(step_times, links, stuck, float(message["warn_after_s"]), int(message["epoch"]))


def _packed(rank: Rank) -> dict[str, Any]:
    operations = rank.recording.operations
    latest = operations[-_SENT_OPERATIONS:]
    waits = [each for each in operations[:-_SENT_OPERATIONS] if each.ended_ns is None][:_SENT_OPERATIONS]
    sent = asdict(replace(rank.recording, operations=(*waits, *latest), links=()))
    return {"recording": {**sent, "state": rank.recording.state.value}, "activity": rank.activity.name}


def _unpacked(message: Mapping[str, Any], ahead_ns: int) -> Rank:
    sent = message["recording"]
    operations = tuple(_shifted(Operation(**each), ahead_ns) for each in sent["operations"])
    recording = Recording(**{**sent, "state": State(sent["state"]), "operations": operations, "links": ()})
    return Rank(recording, Activity[message["activity"]])


def _shifted(operation: Operation, by_ns: int) -> Operation:
    names = ("submitted_ns", "agreed_ns", "started_ns", "ended_ns")
    moments = {name: at_ns + by_ns for name in names if (at_ns := getattr(operation, name)) is not None}
    return replace(operation, **moments)
