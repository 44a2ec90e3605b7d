"""The latest frames, for browsers that ask for those after the last one they have. Nobody waits for a browser."""

from __future__ import annotations

import threading
import time
from collections import deque

_MOST_BYTES = 4 << 20
_WATCHED_S = 3.0  # after a request; a page asks several times a second


class History:
    """Frames are numbered from 0 on; the oldest go where there is no room. Any thread may call this."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._lock = threading.Lock()
        self._frames: deque[bytes] = deque()
        self._bytes, self._most_bytes = 0, most_bytes
        self._next = 0  # the number of the next frame
        self._over = False
        self._asked_s = float("-inf")

    @property
    def is_watched(self) -> bool:
        """Returns whether a page has asked for frames lately."""
        return time.monotonic() - self._asked_s < _WATCHED_S

    def publish(self, frame: bytes) -> None:
        """Add a frame, which is JSON."""
        with self._lock:
            self._next += 1
            self._frames.append(frame)
            self._bytes += len(frame)
            while self._bytes > self._most_bytes and len(self._frames) > 1:
                self._bytes -= len(self._frames.popleft())

    def end(self) -> None:
        """No more frames will come."""
        self._over = True

    def since(self, number: int) -> bytes:
        """JSON: the frames from this number on, the next number, how many of the wanted are gone, and the end."""
        self._asked_s = time.monotonic()
        with self._lock:
            first = self._next - len(self._frames)
            frames = list(self._frames)[max(0, number - first) :]
            missed = max(0, first - number) if number else 0  # a page that has just begun misses nothing
            state = b'"next":%d,"missed":%d,"over":%s' % (self._next, missed, b"true" if self._over else b"false")
        return b'{%s,"frames":[%s]}' % (state, b",".join(frames))
