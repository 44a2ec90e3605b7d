"""The memory of the agents of a job (memory.py) -> the decisions of the launcher that adopts it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from farandole._start.membership_channel import Message
from farandole.launch.job import Placement
from farandole.launch.membership import Answer, Lease
from farandole.launch.slots import Slots

LEFT_OUT = "the other ranks could not reach this one, and go on without it"


@dataclass(frozen=True)
class KnownRank:
    """A rank that an agent has started."""

    placement: Placement
    pid: int
    age_s: float
    hello: Message | None
    is_paused: bool
    has_left: bool
    asks: Message | None


@dataclass(frozen=True)
class HostState:
    """The memory of the agent of one host."""

    ranks: Sequence[KnownRank] = ()
    deaths: Sequence[tuple[Message, float]] = ()  # and how long ago, in seconds
    has_begun: bool = False
    epoch: Message | None = None
    alone_s: float = 0.0  # for so long it had no launcher
    lost: Sequence[tuple[int, int]] = field(default=())  # ranks, and the bytes of their output that are gone


def parse(message: Message) -> HostState:
    """Raises KeyError, TypeError or ValueError for what is no state."""
    return HostState(
        ranks=[_known(each) for each in message["ranks"]],
        deaths=[(dict(each["told"]), float(each["ago_s"])) for each in message["deaths"]],
        has_begun=bool(message["has_begun"]),
        epoch=None if message["epoch"] is None else dict(message["epoch"]),
        alone_s=float(message["alone_s"]),
        lost=[(int(rank), int(size)) for rank, size in message["lost"]],
    )


def _known(each: dict[str, Any]) -> KnownRank:
    placement = Placement(**each["placement"])
    flags = bool(each["is_paused"]), bool(each["has_left"])
    return KnownRank(placement, int(each["pid"]), float(each["age_s"]), each["hello"], *flags, each["asks"])


def last_epoch(states: Iterable[HostState]) -> Message | None:
    """The last that was decided. None: the job is in its first."""
    decided = [each.epoch for each in states if each.epoch is not None]
    return max(decided, key=lambda epoch: int(epoch["number"]), default=None)


def restore(lease: Lease, states: Sequence[HostState]) -> None:
    """Bring a new lease to where the job is, before deaths are entered and questions are answered."""
    epoch = last_epoch(states)
    if epoch is not None:
        lease.number, lease.members = int(epoch["number"]), tuple(int(each) for each in epoch["members"])
    known = [rank for state in states for rank in state.ranks]
    for rank in known:
        if rank.hello is not None:
            lease.hear(rank.placement.rank, rank.hello, 0.0)
    has_begun = any(state.has_begun for state in states)
    paused = {rank.placement.rank for rank in known if rank.is_paused}
    left = {rank.placement.rank for rank in known if rank.has_left}
    lease.resume(begun=set(lease.members) - paused if has_begun else (), left=left)


def answer(lease: Lease, states: Sequence[HostState], living: Collection[int], now: float) -> list[Answer]:
    """Answer what living ranks asked while there was no launcher. REQUIRES that all deaths are entered."""
    epoch = last_epoch(states)
    answers: list[Answer] = []
    for known in (rank for state in states for rank in state.ranks):
        rank, asks = known.placement.rank, known.asks
        if asks is None or rank not in living:
            continue
        is_decided = epoch is not None and (asks["kind"] == "join" or int(asks["epoch"]) < int(epoch["number"]))
        if epoch is not None and is_decided and (rank in epoch["members"] or asks.get("leaving")):
            answers.append((rank, epoch))  # decided, but the launcher died before it told this rank
        elif is_decided and asks["kind"] == "report":
            answers.append((rank, {"kind": "end", "why": LEFT_OUT}))
        else:
            answers += lease.hear(rank, asks, now)
    return answers


def restore_slots(slots: Slots, states: Sequence[HostState], gone_hosts: Iterable[str]) -> None:
    """Bring the places of a new launcher to where the job is. Deaths are entered afterwards."""
    epoch = last_epoch(states)
    numbers = [rank.placement.rank for state in states for rank in state.ranks]
    numbers += [int(told["rank"]) for state in states for told, _ in state.deaths]
    numbers += [] if epoch is None else [int(each) for each in epoch["members"]]
    slots.resume([rank.placement for state in states for rank in state.ranks], max(numbers, default=-1) + 1)
    for host in gone_hosts:
        slots.close(host)
