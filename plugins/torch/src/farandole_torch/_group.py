"""What all operations of a group share: its members, the order of its calls, its time limit, its threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from farandole import ProcessSet
from farandole.plugin.distributed import limit_waits
from torch.distributed.constants import default_pg_timeout

from farandole_torch._adapter import Tensor
from farandole_torch._futures import Completer, Futures, Pending
from farandole_torch._monitored_barrier import MonitoredBarrier
from farandole_torch._private import name_of_group
from farandole_torch._work import Work

_AT_ONCE_S = 0.001
_DROPPED = 16  # most works kept that only C++ refers to: one for each model in a Join


class Group(dist.ProcessGroup):  # type: ignore[misc]  # torch is not read
    """All ranks of the world, or those of a process set."""

    def __init__(self, rank: int, ranks: Sequence[int], process_set: ProcessSet | None, store: Any) -> None:
        """`ranks`: the members' world ranks, in the order of the group; `rank`: this rank's number in the group."""
        super().__init__(rank, len(ranks))
        self._rank, self._ranks, self._process_set = rank, list(ranks), process_set
        is_ascending = self._ranks == sorted(self._ranks)
        self.rank_at = sorted(range(len(self._ranks)), key=self._ranks.__getitem__)  # by position in the process set
        self.positions = None if is_ascending else [sorted(self._ranks).index(each) for each in self._ranks]
        self._name = ""  # torch's name for the group, also after torch has forgotten it
        self._timeout = timedelta(0)
        self._monitored_barrier = MonitoredBarrier(store, rank, len(ranks))
        self.coalesced: list[Work] | None = None  # works that have begun since `_start_coalescing`
        self.lock = threading.Lock()  # protects deferred operations, and futures
        self._futures, self._futures_with_callbacks = Futures(), Futures()
        self._faster: Any = None
        self._at_the_end: list[Callable[[], None]] = []
        self.dropped: deque[Work] = deque()  # works that nobody has waited for

    # ---- what torch asks of a group

    @property
    def group_name(self) -> str:
        self._name = name_of_group(self, self._name)
        return self._name

    pg_name = group_name

    def getBackendName(self) -> str:
        return "farandole"

    def getRank(self) -> int:
        return self._rank

    def getSize(self) -> int:
        return len(self._ranks)

    def rank_of(self, world_rank: int) -> int:
        """Return the group rank of a rank of the world."""
        return self._ranks.index(world_rank)

    def set_timeout(self, timeout: timedelta) -> None:
        """Limit each wait for an operation of the group. The limit never changes what happens to the operation."""
        self._timeout = timeout
        limit_waits(self._process_set, timeout.total_seconds())

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: DETAIL's wrapper calls this for other backends; here the core numbers and compares calls."""

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Block until all ranks have called; on rank 0 of the group, raise a DeadlineError that names the missing
        ranks.

        `wait_all_ranks`: name all missing ranks, not only the first.
        """
        limit = (self._timeout or default_pg_timeout) if timeout is None else timeout
        self._monitored_barrier.meet(limit, wait_all_ranks)

    # ---- several calls at once

    def _start_coalescing(self, device: Any) -> None:
        self.coalesced = []

    def _end_coalescing(self, device: Any) -> Work:
        works, self.coalesced = self.coalesced or [], None
        handles = [handle for work in works for handle in work.handles]
        return Work(self, handles, [work.result() for work in works], title="coalesced", is_ordered=False)

    # ---- the order of ranks; a process set orders them by their numbers in the world

    def by_rank(self, flat: Tensor) -> Tensor:
        """Return the equal parts of a flat tensor, reordered from the process set's positions to the group's ranks."""
        return flat if self.positions is None else flat.view(self.getSize(), -1)[self.positions].reshape(-1)

    def by_position(self, rows: Tensor) -> Tensor:
        """Return the rows of a tensor, reordered from the group's ranks to the process set's positions."""
        return rows if self.positions is None else rows[self.rank_at]

    # ---- order and threads

    def complete_later(self, pending: Pending, has_callbacks: bool = False) -> None:
        """Have a thread complete the future of `pending`. `has_callbacks`: the callbacks may begin operations; see
        `_in_order`.
        """
        if has_callbacks:
            self.__dict__.pop("allreduce", None)
        (self._futures_with_callbacks if has_callbacks else self._futures).add(pending)

    def keep(self, work: Work) -> None:
        """Keep a Work that was dropped while its operation is under way, and a few others."""
        self.dropped.append(work)
        for _ in range(len(self.dropped) - _DROPPED):  # a work that never ends must not keep the others here
            oldest = self.dropped.popleft()
            if oldest.is_pending():
                self.dropped.append(oldest)

    def _in_order(self) -> ProcessSet | None:
        """Return the process set, for a call that is matched by its order.

        On all ranks the call comes after the calls that callbacks of earlier futures make, as with a library that runs
        callbacks within `then`.
        """
        if "allreduce" not in self.__dict__ and not isinstance(threading.current_thread(), Completer):
            self._futures_with_callbacks.join()
            if self._faster is not None:
                self.__dict__["allreduce"] = self._faster
        return self._process_set

    def shutdown(self) -> None:
        """End the group's threads after they have completed their work. Called when a group is destroyed."""
        self.__dict__.pop("allreduce", None)
        self._faster = None  # it refers to this group
        self.dropped.clear()
        self._futures.end()
        self._futures_with_callbacks.end()
        for call in self._at_the_end:
            call()
        self._at_the_end.clear()

    def when_shut_down(self, call: Callable[[], None]) -> None:
        """Call `call` when the group is shut down."""
        self._at_the_end.append(call)

    def abort(self) -> None:
        """End the group. Threads that wait for its collectives get a DeadlineError."""
        limit_waits(self._process_set, _AT_ONCE_S)
        self.shutdown()
