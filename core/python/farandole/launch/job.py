"""The options -np and -H -> which rank runs where. Pure: nothing here touches the machine."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

MAX_RANKS = 65536  # a guard against a slip of the finger, not a promise
LOCAL_HOST = "localhost"
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?::(?P<slots>[^\n]*))?")


class JobError(ValueError):
    """The options cannot be fulfilled; the message is one sentence for the user."""


@dataclass(frozen=True)
class Slots:
    """So many ranks may run on `host`."""

    host: str
    count: int


@dataclass(frozen=True)
class Placement:
    """One rank's place. Cross ranks count the hosts that have this local rank."""

    rank: int
    size: int
    host: str
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


def parse_count(text: str, what: str) -> int:
    """A positive whole number written in digits; `what` names it in the error."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
        raise JobError(f"{what} must be a positive whole number, not {text!r}.")
    if int(text) > MAX_RANKS:
        raise JobError(f"{what} must be at most {MAX_RANKS}, not {text}.")
    return int(text)


def parse_hosts(text: str) -> list[Slots]:
    """`h0:4,h1` -> 4 slots on h0, 1 on h1; slots of a host named twice add up."""
    counts: dict[str, int] = {}
    for item in text.split(","):
        match = _HOST.fullmatch(item.strip())
        if match is None:
            raise JobError(f"-H wants host:slots, as in localhost:4, not {item.strip()!r}.")
        host = match["host"].strip("[]")
        slots = 1 if match["slots"] is None else parse_count(match["slots"], f"the number of slots of {host}")
        counts[host] = counts.get(host, 0) + slots
    return [Slots(host, count) for host, count in counts.items()]


def on_this_machine(hosts: Iterable[Slots], local_names: Collection[str]) -> list[Slots]:
    """The same slots under one name; refuses hosts that are not this machine."""
    total = 0
    for slots in hosts:
        if slots.host.lower() not in local_names:
            raise JobError(
                f"{slots.host} is another machine: ranks on remote hosts come with a later release, "
                f"this one starts them on {LOCAL_HOST} only."
            )
        total += slots.count
    return [Slots(LOCAL_HOST, total)]


def place(ranks: int, hosts: list[Slots]) -> list[Placement]:
    """Fill the hosts in order with `ranks` ranks. REQUIRES ranks <= the sum of the slots."""
    filled: list[tuple[str, int]] = []
    for slots in hosts:
        used = min(slots.count, ranks - sum(count for _, count in filled))
        if used > 0:
            filled.append((slots.host, used))
    placements: list[Placement] = []
    for index, (host, local_size) in enumerate(filled):
        for local_rank in range(local_size):
            cross_rank = sum(1 for _, count in filled[:index] if count > local_rank)
            cross_size = sum(1 for _, count in filled if count > local_rank)
            rank = len(placements)
            placements.append(Placement(rank, ranks, host, local_rank, local_size, cross_rank, cross_size))
    return placements


def plan(num_proc: str | None, hosts: str | None, local_names: Collection[str]) -> list[Placement]:
    """The two options as typed -> the places of all ranks, or JobError."""
    ranks = None if num_proc is None else parse_count(num_proc, "-np")
    if hosts is None:
        if ranks is None:
            raise JobError("say how many ranks to start: farandole run -np 4 python train.py")
        return place(ranks, [Slots(LOCAL_HOST, ranks)])
    slots = on_this_machine(parse_hosts(hosts), local_names)
    offered = sum(one.count for one in slots)
    if offered > MAX_RANKS:
        raise JobError(f"-H offers {offered} slots, more than the {MAX_RANKS} ranks that a job may have.")
    if ranks is not None and ranks > offered:
        slots_of = f"{offered} slot{'s' if offered > 1 else ''}"
        raise JobError(f"-np {ranks} asks for more ranks than the {slots_of} of -H {hosts}.")
    return place(offered if ranks is None else ranks, slots)
