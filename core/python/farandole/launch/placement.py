"""The options -np, -H and --hostfile -> which rank runs where. Pure: nothing here touches the machine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from farandole.launch.hosts import LOCAL_HOST, MAX_RANKS, HostList, HostSlots, parse_count, under_one_name
from farandole.launch.spec import SpecError

__all__ = ["HostSlots", "Placement", "SpecError", "parse_count", "place", "plan"]


@dataclass(frozen=True)
class Placement:
    """One rank's place. Cross ranks count the hosts that have this local rank.

    `host`: as typed, without brackets; `localhost` where all listed hosts are this machine.
    """

    rank: int
    size: int
    host: str
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


def place(ranks: int, hosts: Sequence[HostSlots]) -> list[Placement]:
    """Fill the hosts in order with `ranks` ranks. REQUIRES ranks <= the sum of the slots."""
    filled: list[tuple[str, int]] = []
    left = ranks
    for slots in hosts:
        used = min(slots.count, left)
        if used > 0:
            filled.append((slots.host, used))
        left -= used
    most = max((used for _, used in filled), default=0)
    cross_sizes, cross_ranks = _hosts_with(filled, most), [0] * most
    placements: list[Placement] = []
    for host, local_size in filled:
        for local_rank in range(local_size):
            cross_rank, cross_size = cross_ranks[local_rank], cross_sizes[local_rank]
            placements.append(Placement(len(placements), ranks, host, local_rank, local_size, cross_rank, cross_size))
            cross_ranks[local_rank] += 1
    return placements


def _hosts_with(filled: Sequence[tuple[str, int]], most: int) -> list[int]:
    """For each local rank, the number of hosts that have it."""
    of_size = [0] * (most + 1)
    for _, used in filled:
        of_size[used] += 1
    counts = [0] * most
    larger = 0
    for local_rank in range(most - 1, -1, -1):
        larger += of_size[local_rank + 1]
        counts[local_rank] = larger
    return counts


def plan(
    num_proc: str | None, hosts: HostList | None, local_names: Collection[str], slots_here: int = 1
) -> list[Placement]:
    """The options -> the places of all ranks, or SpecError.

    Args:
        num_proc: as typed; `auto` or None: all slots of the hosts.
        hosts: of -H or --hostfile.
        local_names: names and addresses of this machine, in lower case.
        slots_here: the ranks of `auto` without a list of hosts.
    """
    ranks = None if num_proc in (None, "auto") else parse_count(str(num_proc), "-np")
    if hosts is None:
        if num_proc == "auto":
            ranks = min(slots_here, MAX_RANKS)
        if ranks is None:
            raise SpecError("say how many ranks to start: farandole run -np 4 python train.py")
        return place(ranks, [HostSlots(LOCAL_HOST, ranks)])
    slots = under_one_name(hosts.slots, local_names)
    return place(_ranks(ranks, slots, hosts.origin), slots)


def _ranks(ranks: int | None, slots: Sequence[HostSlots], origin: str) -> int:
    offered = sum(one.count for one in slots)
    if ranks is None and offered > MAX_RANKS:
        raise SpecError(f"{origin} offers {offered} slots, more than the {MAX_RANKS} ranks that a job may have.")
    if ranks is not None and ranks > offered:
        has = f"{offered} slot{'s' if offered > 1 else ''} of {origin}"
        on = "1 host" if len(slots) == 1 else f"{len(slots)} hosts"
        raise SpecError(f"-np {ranks} asks for more ranks than the {has} on {on}: lower -np, or list more slots.")
    return offered if ranks is None else ranks
