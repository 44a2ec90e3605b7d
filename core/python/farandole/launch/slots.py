"""The places of an elastic job's ranks: a place whose rank was lost gets a new one, after a while. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from farandole.launch.job import Placement

MOST_STARTS = 1_000  # of ranks beside those of the start


@dataclass(frozen=True)
class Backoff:
    """How long a place stays empty: twice as long after each loss, up to the most. Seconds."""

    least_s: float = 1.0
    most_s: float = 60.0


@dataclass
class _Slot:
    """A place on a host."""

    host: str
    local_rank: int
    rank: int  # the number of its last process
    losses: int = 0  # in a row
    began_at: float = 0.0
    free_at: float | None = None  # None: it is taken


@dataclass
class Slots:
    """The places of one job. Ranks are numbers of processes: those of the start, then of the newcomers."""

    placements: list[Placement]
    max_np: int
    backoff: Backoff
    reset_limit: int = MOST_STARTS
    _slots: list[_Slot] = field(default_factory=list)
    _next: int = 0

    def __post_init__(self) -> None:
        self._slots = [_Slot(each.host, each.local_rank, each.rank) for each in self.placements]
        self._next = len(self.placements)

    @property
    def capacity(self) -> int:
        """How many numbers there may be."""
        return len(self.placements) + min(self.reset_limit, MOST_STARTS)

    def lost(self, rank: int, now: float) -> None:
        """The process of this number has failed. A place where one has lived for long is as good as new."""
        for slot in self._slots:
            if slot.rank == rank and slot.free_at is None:
                lived_long = now - slot.began_at > self.backoff.most_s
                slot.losses = 1 if lived_long else slot.losses + 1
                slot.free_at = now + min(self.backoff.most_s, self.backoff.least_s * 2 ** (slot.losses - 1))

    def resume(self, placements: Iterable[Placement], number: int) -> None:
        """Another launcher has started these ranks until now; the next one has this number."""
        for each in sorted(placements, key=lambda placement: placement.rank):
            for slot in self._slots:
                if (slot.host, slot.local_rank) == (each.host, each.local_rank):
                    slot.rank = each.rank
        self._next = max(self._next, number)

    def close(self, host: str) -> None:
        """The host is gone, and its places with it."""
        self._slots = [slot for slot in self._slots if slot.host != host]

    def next_due(self, now: float, running: int) -> float | None:
        """In how many seconds `due` may return one."""
        if running >= self.max_np:
            return None
        times = [slot.free_at - now for slot in self._slots if slot.free_at is not None]
        return max(0.0, min(times)) if times and self._next < self.capacity else None

    def due(self, now: float, running: int) -> Placement | None:
        """The place of a rank to start now, where `running` ranks run. It counts as started."""
        free = [slot for slot in self._slots if slot.free_at is not None and slot.free_at <= now]
        if not free or running >= self.max_np or self._next >= self.capacity:
            return None
        slot = free[0]
        slot.rank, slot.began_at, slot.free_at = self._next, now, None
        self._next += 1
        on_host = [each for each in self._slots if each.host == slot.host]
        hosts = list(dict.fromkeys(each.host for each in self._slots))
        size = max(running + 1, len(on_host), len(hosts))  # until it joins
        return Placement(slot.rank, size, slot.host, slot.local_rank, len(on_host), hosts.index(slot.host), len(hosts))
