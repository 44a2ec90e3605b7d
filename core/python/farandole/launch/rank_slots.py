"""The slots of an elastic job's ranks: a slot whose rank was lost gets a new one, after a pause. Pure.

Hosts with slots come and go, and the number of their slots may change.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from farandole.launch.hosts import MAX_RANKS
from farandole.launch.placement import Placement

MOST_STARTS = 1_000  # of ranks beside those of the start


@dataclass(frozen=True)
class Backoff:
    """How long a slot stays empty, in seconds: doubled after each loss, up to `most_s`."""

    least_s: float = 1.0
    most_s: float = 60.0

    def pause_s(self, losses: int) -> float:
        """After so many losses in a row, at least one."""
        return min(self.most_s, self.least_s * 2.0 ** min(losses - 1, 60))


@dataclass(eq=False)
class _Slot:
    """A slot on a host."""

    host: str
    local_rank: int
    rank: int  # the number of its last process
    losses: int = 0  # in a row
    began_at: float = 0.0
    free_at: float | None = None  # None: it is taken
    is_awaited: bool = False  # its rank has been started, and does not want to join yet


@dataclass
class RankSlots:
    """The slots of one job. Ranks are member numbers: those of the start, then of new ranks."""

    placements: list[Placement]
    max_np: int
    backoff: Backoff
    _slots: list[_Slot] = field(default_factory=list)
    _next: int = 0
    _stopped: bool = False

    def __post_init__(self) -> None:
        self._slots = [_Slot(each.host, each.local_rank, each.rank) for each in self.placements]
        self._next = len(self.placements)

    @property
    def capacity(self) -> int:
        """The largest possible number of members."""
        return len(self.placements) + MOST_STARTS

    def lost(self, rank: int, now: float) -> None:
        """The process of this number has failed. If it has run for long, earlier losses of its slot are forgotten."""
        for slot in self._slots:
            if slot.rank == rank and slot.free_at is None:
                lived_long = now - slot.began_at > self.backoff.most_s
                slot.losses = 1 if lived_long else slot.losses + 1
                slot.free_at = now + self.backoff.pause_s(slot.losses)

    def came(self, rank: int) -> None:
        """This new rank asks to join."""
        for slot in self._slots:
            slot.is_awaited &= slot.rank != rank

    def overdue(self, now: float, limit_s: float) -> list[tuple[int, str]]:
        """The new ranks that have not asked to join in time, and their hosts. Each is named once."""
        late = [slot for slot in self._slots if self._is_awaited(slot) and now - slot.began_at >= limit_s]
        for slot in late:
            slot.is_awaited = False
        return [(slot.rank, slot.host) for slot in late]

    def next_overdue(self, now: float, limit_s: float) -> float | None:
        """Seconds until `overdue` may return one."""
        times = [slot.began_at + limit_s - now for slot in self._slots if self._is_awaited(slot)]
        return max(0.0, min(times)) if times else None

    @staticmethod
    def _is_awaited(slot: _Slot) -> bool:
        return slot.is_awaited and slot.free_at is None

    def taken(self, host: str) -> list[int]:
        """The ranks on this host, in the order of their slots."""
        on_host = [slot for slot in self._slots if slot.host == host and slot.free_at is None]
        return [slot.rank for slot in sorted(on_host, key=lambda slot: slot.local_rank)]

    def resize(self, host: str, count: int, now: float) -> list[int]:
        """Set the number of slots of this host. Returns the ranks that lose theirs: the last of `taken`."""
        on_host = sorted((slot for slot in self._slots if slot.host == host), key=lambda slot: slot.local_rank)
        unused = (number for number in range(MAX_RANKS) if number not in {slot.local_rank for slot in on_host})
        self._slots += [_Slot(host, next(unused), -1, free_at=now) for _ in range(count - len(on_host))]
        free_last = sorted(on_host, key=lambda slot: slot.free_at is not None)
        surplus = free_last[count:]
        self._slots = [slot for slot in self._slots if slot not in surplus]
        return [slot.rank for slot in surplus if slot.free_at is None]

    def usable(self, now: float) -> int:
        """The number of slots that are taken or may be filled now."""
        return sum(slot.free_at is None or slot.free_at <= now for slot in self._slots)

    @property
    def may_start(self) -> bool:
        """Return whether there may be new ranks at all."""
        return not self._stopped and self._next < self.capacity

    @property
    def may_bring(self) -> bool:
        """Return whether a new rank may still come: one that has been started, or one that may be."""
        return self.may_start or any(map(self._is_awaited, self._slots))

    def stop(self) -> None:
        """Start no more ranks: the job is ending, or its next change would end it."""
        self._stopped = True

    def close(self, host: str) -> None:
        """The host is gone, and its slots with it."""
        self._slots = [slot for slot in self._slots if slot.host != host]

    def next_due(self, now: float, running: int) -> float | None:
        """Seconds until `due` may return one."""
        if not self.may_start or running >= self.max_np:
            return None
        times = [slot.free_at - now for slot in self._slots if slot.free_at is not None]
        return max(0.0, min(times)) if times else None

    def due(self, now: float, running: int) -> Placement | None:
        """The slot of a rank to start now, given `running` ranks. It then counts as started."""
        free = [slot for slot in self._slots if slot.free_at is not None and slot.free_at <= now]
        if not free or running >= self.max_np or not self.may_start:
            return None
        slot = free[0]
        slot.rank, slot.began_at, slot.free_at, slot.is_awaited = self._next, now, None, True
        self._next += 1
        on_host = [each for each in self._slots if each.host == slot.host]
        hosts = list(dict.fromkeys(each.host for each in self._slots))
        size = max(running + 1, len(on_host), len(hosts))  # until it joins
        return Placement(slot.rank, size, slot.host, slot.local_rank, len(on_host), hosts.index(slot.host), len(hosts))
