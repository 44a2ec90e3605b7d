"""Threads that complete the futures of operations."""

from __future__ import annotations

import queue
import threading
from typing import Protocol


class Pending(Protocol):
    """An operation whose future is not complete yet."""

    def complete_future(self) -> None:
        """Wait for the operation, complete its future, and run the future's callbacks."""


class Completer(threading.Thread):
    """A thread that runs callbacks."""


class Futures:
    """Completes each future in a thread that waits for nothing else.

    A callback may wait for another operation, even for a later one, so each future that is not complete has a thread.
    Threads are reused until `end` is called.
    """

    def __init__(self) -> None:
        self._pending: queue.Queue[Pending | None] = queue.Queue()  # None tells a thread to end
        self._idle = threading.Semaphore(0)  # number of idle threads

    def add(self, pending: Pending) -> None:
        self._pending.put(pending)
        if not self._idle.acquire(blocking=False):
            Completer(target=self._run, name="farandole futures", daemon=True).start()

    def join(self) -> None:
        """Block until all futures are complete and their callbacks have returned."""
        self._pending.join()

    def end(self) -> None:
        """Let the threads end after they have completed the futures that were added."""
        self._pending.put(None)

    def _run(self) -> None:
        while self._complete_next():
            self._idle.release()
        self._pending.put(None)  # for the next thread

    def _complete_next(self) -> bool:
        """Complete the next future. Keeps nothing alive while the thread waits for more."""
        pending = self._pending.get()
        try:
            if pending is not None:
                pending.complete_future()
        finally:
            self._pending.task_done()
        return pending is not None
