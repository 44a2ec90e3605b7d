"""Node 0's list of the nodes that have come, and their ranks."""

from __future__ import annotations

import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from farandole._start import sockets
from farandole._start.frames import Message
from farandole.launch.hosts import MAX_RANKS, HostSlots
from farandole.launch.messages import shown
from farandole.launch.placement import Placement, place

_NAMED = 8


class NodeListError(ValueError):
    """One cannot join, which may end the start of the job; the message is one sentence for the user."""

    def __init__(self, message: str, ends_the_start: bool = True) -> None:
        super().__init__(message)
        self.ends_the_start = ends_the_start


@dataclass(frozen=True)
class Member:
    """A node that has come."""

    host: str  # its name
    address: str  # where ranks elsewhere reach its own
    slots: int
    connection: socket.socket | None = None  # to its launcher, whose key is proved; none to our own
    greeting: Message | None = None


@dataclass
class NodeList:
    """The nodes that have come; node 0 is there from the beginning."""

    count: int
    version: str
    own: Member
    _members: dict[int, Member] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._members[0] = self.own

    def join(self, content: Message, connection: socket.socket | None = None) -> int:
        """A node's greeting -> its number. Raises NodeListError; KeyError, TypeError or ValueError."""
        number, slots = int(content["node"]), content["slots"]
        if not isinstance(slots, int) or not 0 < slots <= MAX_RANKS:
            raise ValueError(f"{slots!r} is no number of slots")
        member = Member(str(content["host"]), str(content["address"]), slots, connection, content)
        who = f"node {number} ({member.host})"
        if content["version"] != self.version:
            raise NodeListError(
                f"{who} has farandole {shown(content['version'])}, node 0 {self.version}; give all nodes the same one."
            )
        if content["count"] != self.count:
            raise NodeListError(
                f"{who} has --nnodes {int(content['count'])}, node 0 {self.count}; give all nodes the same."
            )
        if number in self._members:
            there = self._members[number].host
            why = f"node {number} has connected already, from {there}; give each node its own --node-rank."
            raise NodeListError(why, ends_the_start=False)
        self._members[number] = member
        total = sum(each.slots for each in self._members.values())
        if total > MAX_RANKS:
            raise NodeListError(f"the nodes have {total} ranks, more than the {MAX_RANKS} that a job may have.")
        return number

    def forget_gone(self) -> None:
        """Forget nodes that have disconnected before the start; others may take their numbers."""
        for number, connection in [(number, each.connection) for number, each in self._members.items()]:
            if connection is not None and sockets.is_gone(connection):
                connection.close()
                del self._members[number]

    @property
    def missing(self) -> list[int]:
        """The numbers of those that have not come."""
        return [each for each in range(self.count) if each not in self._members]

    @property
    def members(self) -> list[Member]:
        """The connected nodes, in order."""
        return [self._members[number] for number in sorted(self._members)]


def placements(members: Sequence[Member]) -> list[list[Placement]]:
    """The ranks of each node."""
    slots = [HostSlots(each.host, each.slots) for each in members]
    placed = iter(place(sum(each.count for each in slots), slots))
    return [[next(placed) for _ in range(each.count)] for each in slots]


def nodes(numbers: Sequence[int]) -> str:
    """`node 1`, `nodes 1 and 3`; the first few where they are many."""
    listed = [str(each) for each in numbers[:_NAMED]]
    if len(numbers) > _NAMED:
        listed.append(f"{len(numbers) - _NAMED} more")
    return f"node {listed[0]}" if len(listed) == 1 else f"nodes {', '.join(listed[:-1])} and {listed[-1]}"


def late(missing: Sequence[int], count: int, endpoint: str, seconds: float, strangers: Collection[str]) -> str:
    """The sentence about nodes that have not come. `strangers`: addresses that came with another key."""
    look = (
        "its log, and at whether it was started"
        if len(missing) == 1
        else "their logs, and at whether they were started"
    )
    sentence = f"{nodes(missing)} of {count} did not connect to {endpoint} within {seconds:g} s: look at {look}"
    if strangers:
        came = f"a launcher at {', '.join(sorted(strangers)[:_NAMED])} has another key"
        sentence += f"; {came}, and --key-file must hold the same one on all nodes"
    return sentence + "."
