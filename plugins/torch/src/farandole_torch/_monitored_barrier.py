"""A barrier that reports missing ranks and leaves the group usable.

It uses torch's store, so it also works while operations of the group are stuck:

    rank r > 0    sets "<n>/r", waits for "<n>/0"
    rank 0        waits for "<n>/1", "<n>/2", ..., then sets "<n>/0" to "passed" or "failed"

where n counts the calls.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from farandole import DeadlineError

_PASSED, _FAILED = b"passed", b"failed"


class MonitoredBarrier:
    """The barriers of one group. Ranks are numbers in the group."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._calls = 0

    def meet(self, timeout: timedelta, wait_all_ranks: bool) -> None:
        """Block until all ranks have called.

        Raises:
            DeadlineError: a rank has not called in time. On rank 0 the message names that rank or, with
                `wait_all_ranks`, all missing ranks; the other ranks' messages refer to rank 0.
        """
        self._calls += 1
        deadline = time.monotonic() + timeout.total_seconds()
        if self._rank:
            self._report(deadline)
        elif missing := self._missing(deadline, wait_all_ranks):
            self._store.set(self._key(0), _FAILED)
            raise DeadlineError(_failure(missing, timeout))
        else:
            self._store.set(self._key(0), _PASSED)
            self._forget(self._calls - 1)

    def _report(self, deadline: float) -> None:
        self._store.set(self._key(self._rank), _PASSED)
        if not self._comes(0, deadline) or self._store.get(self._key(0)) != _PASSED:
            raise DeadlineError(
                f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting for "
                "send/recv from rank 0; the error of rank 0 names who is missing"
            )

    def _missing(self, deadline: float, all_of_them: bool) -> list[int]:
        """Return the missing ranks, or only the first; rank 0 itself if there is no time to wait for any other."""
        missing: list[int] = []
        for rank in range(1, self._size):
            if time.monotonic() >= deadline and not all_of_them:
                return missing or [0]
            if not self._comes(rank, deadline):
                missing.append(rank)
                if not all_of_them:
                    break
        return missing

    def _comes(self, rank: int, deadline: float) -> bool:
        """Block until a rank has set its key, or until the deadline. Returns whether it has."""
        key, left_s = self._key(rank), deadline - time.monotonic()
        if left_s <= 0:
            return bool(self._store.check([key]))
        try:
            self._store.wait([key], timedelta(seconds=left_s))
        except RuntimeError:
            if time.monotonic() < deadline - 0.01:  # the store has failed; it measures time in milliseconds
                raise
            return False
        return True

    def _forget(self, call: int) -> None:
        """Delete the keys of an earlier call. All ranks have left it, since they are in a later one."""
        for rank in range(self._size if call else 0):
            with suppress(RuntimeError, NotImplementedError):  # not every store supports it
                self._store.delete_key(self._key(rank, call))

    def _key(self, rank: int, call: int = 0) -> str:
        return f"monitored_barrier/{call or self._calls}/{rank}"


def _failure(missing: list[int], timeout: timedelta) -> str:
    seconds = f"{timeout.total_seconds():g} s"
    if missing == [0]:
        return f"Rank 0 timed out in monitoredBarrier after {seconds}, before it could wait for the other ranks"
    ranks = ", ".join(map(str, missing))
    return f"Rank{'s' if len(missing) > 1 else ''} {ranks} failed to pass monitoredBarrier within {seconds}"
