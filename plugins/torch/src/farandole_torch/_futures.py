"""Threads that complete the futures of operations."""

from __future__ import annotations

import queue
import threading
from typing import Protocol


class Pending(Protocol):
    """An operation whose future is not complete yet."""

    def complete_future(self) -> None:
        """Wait for the operation, complete its future, and run the callbacks of that."""


class Completer(threading.Thread):
    """A thread that runs callbacks."""


class Futures:
    """Completes each future in a thread that waits for nothing else.

    A callback may wait for another operation, also for a later one, so there are as many threads as there are futures
    that are not complete. Threads are used again; they end with `end`.
    """

    def __init__(self) -> None:
        self._pending: queue.Queue[Pending | None] = queue.Queue()  # None: end
        self._idle = threading.Semaphore(0)  # a count of threads

    def add(self, pending: Pending) -> None:
        self._pending.put(pending)
        if not self._idle.acquire(blocking=False):
            Completer(target=self._run, name="farandole futures", daemon=True).start()

    def join(self) -> None:
        """Block until all are complete and their callbacks are over."""
        self._pending.join()

    def end(self) -> None:
        """Let the threads end when they have completed what was added."""
        self._pending.put(None)

    def _run(self) -> None:
        while self._complete_next():
            self._idle.release()
        self._pending.put(None)  # for the next thread

    def _complete_next(self) -> bool:
        """Keeps nothing alive while the thread waits for more."""
        pending = self._pending.get()
        try:
            if pending is not None:
                pending.complete_future()
        finally:
            self._pending.task_done()
        return pending is not None
