"""The frames for each reader of the page: queues with limits, so that no reader is waited for."""

from __future__ import annotations

import threading
from collections import deque

_MOST_QUEUED = 16  # frames
_MOST_HISTORY = 4 << 20  # bytes that a new reader gets at first
_MOST_READERS = 8


class Reader:
    """One browser's queue. Frames that do not fit are counted."""

    def __init__(self, history: tuple[bytes, ...], most: int = _MOST_QUEUED) -> None:
        self._queue, self._most = deque(history), most
        self._changed = threading.Condition()
        self._missed, self._over = 0, False

    def put(self, frame: bytes, is_last: bool = False) -> None:
        """Add a frame, in the place of the oldest where there is no room."""
        with self._changed:
            while len(self._queue) >= self._most:
                self._queue.popleft()
                self._missed += 1
            self._queue.append(frame)
            self._over = self._over or is_last
            self._changed.notify()

    def take(self, limit_s: float) -> tuple[bytes | None, int, bool]:
        """The next frame, or None after the time; how many were missed before it; whether no more will come."""
        with self._changed:
            if not self._queue and not self._over:
                self._changed.wait(limit_s)
            frame = self._queue.popleft() if self._queue else None
            missed, self._missed = self._missed, 0
            return frame, missed, self._over and not self._queue


class Hub:
    """All readers of one page."""

    def __init__(self, most_history: int = _MOST_HISTORY) -> None:
        self._lock = threading.Lock()
        self._readers: set[Reader] = set()
        self._history: deque[bytes] = deque()
        self._history_bytes, self._most_history = 0, most_history
        self._last: bytes | None = None

    @property
    def readers(self) -> int:
        """How many there are now."""
        with self._lock:
            return len(self._readers)

    def publish(self, frame: bytes, is_last: bool = False) -> None:
        """Give each reader a frame. Never waits for one."""
        with self._lock:
            self._history.append(frame)
            self._history_bytes += len(frame)
            while self._history_bytes > self._most_history and len(self._history) > 1:
                self._history_bytes -= len(self._history.popleft())
            self._last = frame if is_last else self._last
            for reader in self._readers:
                reader.put(frame, is_last)

    def join(self) -> Reader | None:
        """A new reader with the latest frames; None where there are too many."""
        with self._lock:
            if len(self._readers) >= _MOST_READERS:
                return None
            history = tuple(self._history)
            reader = Reader(history, len(history) + _MOST_QUEUED)
            if self._last is not None:
                reader.put(b": over\n\n", is_last=True)
            self._readers.add(reader)
            return reader

    def leave(self, reader: Reader) -> None:
        """Forget a reader."""
        with self._lock:
            self._readers.discard(reader)
