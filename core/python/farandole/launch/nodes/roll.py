"""Node 0's list of the nodes that have come, and the message by which all know each other. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from farandole.launch.hosts import MAX_RANKS, Slots
from farandole.launch.messages import shown
from farandole.launch.placement import Placement, place

_NAMED = 8


class RollError(ValueError):
    """The job cannot start; the message is one sentence for the user."""


class TwiceError(ValueError):
    """This one cannot join, and the job waits on; the message is one sentence for its user."""


@dataclass(frozen=True)
class Member:
    """A node that has come."""

    host: str  # its name
    address: str  # where ranks elsewhere reach its own
    slots: int


@dataclass(frozen=True)
class Gathered:
    """All that the nodes know of each other when the ranks start."""

    members: Sequence[Member]
    store: str  # rank 0 listens there
    master_port: int  # kept free at node 0, for torch.distributed
    salt: bytes  # of the key of the ranks

    def message(self) -> dict[str, Any]:
        """As `read` takes it."""
        members = [vars(each) for each in self.members]
        return {"members": members, "store": self.store, "master_port": self.master_port, "salt": self.salt.hex()}

    @staticmethod
    def read(content: Mapping[str, Any]) -> Gathered:
        """Raises KeyError, TypeError or ValueError for what is no such message."""
        members = [_member(each) for each in content["members"]]
        return Gathered(members, str(content["store"]), int(content["master_port"]), bytes.fromhex(content["salt"]))

    def placements(self) -> list[list[Placement]]:
        """The ranks of each node."""
        slots = [Slots(each.host, each.slots) for each in self.members]
        placed = place(sum(each.count for each in slots), slots)
        found, at = [], 0
        for each in slots:
            found.append(placed[at : at + each.count])
            at += each.count
        return found


@dataclass
class Roll:
    """The nodes that have come; node 0 is there from the beginning."""

    count: int
    version: str
    own: Member
    _members: dict[int, Member] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._members[0] = self.own

    def join(self, content: Mapping[str, Any]) -> int:
        """A node's message about itself -> its number. Raises RollError, TwiceError; ValueError and its like."""
        number, member = int(content["node"]), _member(content)
        who = f"node {number} ({member.host})"
        if content["version"] != self.version:
            raise RollError(
                f"{who} has farandole {shown(content['version'])}, node 0 {self.version}; give all nodes the same one."
            )
        if content["count"] != self.count:
            raise RollError(
                f"{who} has --nnodes {int(content['count'])}, node 0 {self.count}; give all nodes the same."
            )
        if number in self._members:
            there = self._members[number].host
            raise TwiceError(f"node {number} has come already, from {there}; give each node a --node-rank of its own.")
        self._members[number] = member
        total = sum(each.slots for each in self._members.values())
        if total > MAX_RANKS:
            raise RollError(f"the nodes have {total} ranks, more than the {MAX_RANKS} that a job may have.")
        return number

    def leave(self, number: int) -> None:
        """It has gone before the start; another one may come in its place."""
        self._members.pop(number, None)

    @property
    def missing(self) -> list[int]:
        """The numbers of those that have not come."""
        return [each for each in range(self.count) if each not in self._members]

    @property
    def members(self) -> list[Member]:
        """All, in order. REQUIRES that none is missing."""
        return [self._members[number] for number in range(self.count)]


def nodes(numbers: Sequence[int]) -> str:
    """`node 1`, `nodes 1 and 3`; the first few where they are many."""
    words = [str(each) for each in numbers[:_NAMED]]
    if len(numbers) > _NAMED:
        words.append(f"{len(numbers) - _NAMED} more")
    return f"node {words[0]}" if len(words) == 1 else f"nodes {', '.join(words[:-1])} and {words[-1]}"


def late(missing: Sequence[int], count: int, meeting_point: str, seconds: float, strangers: Collection[str]) -> str:
    """The sentence about nodes that have not come. `strangers`: addresses that came with another key."""
    look = (
        "its log, and at whether it was started"
        if len(missing) == 1
        else "their logs, and at whether they were started"
    )
    sentence = f"{nodes(missing)} of {count} did not come to {meeting_point} within {seconds:g} s: look at {look}"
    if strangers:
        came = f"a launcher at {', '.join(sorted(strangers)[:_NAMED])} came with another key"
        sentence += f"; {came}, and --key-file must hold the same one on all nodes"
    return sentence + "."


def _member(content: Mapping[str, Any]) -> Member:
    slots = content["slots"]
    if not isinstance(slots, int) or not 0 < slots <= MAX_RANKS:
        raise ValueError(f"{slots!r} is no number of slots")
    return Member(str(content["host"]), str(content["address"]), slots)
