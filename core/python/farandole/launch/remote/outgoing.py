"""Bytes on their way into a pipe that may be full: queued, and written when the selector says that there is room."""

from __future__ import annotations

import os
import selectors

_FULL_BYTES = 4 << 20
_SLICE = 1 << 16


class Outgoing:
    """The queue of one descriptor, which it makes non-blocking. No thread: its owner may still fork."""

    def __init__(self, descriptor: int, selector: selectors.BaseSelector) -> None:
        os.set_blocking(descriptor, False)
        self.error: OSError | None = None
        self._descriptor, self._selector = descriptor, selector
        self._queue = bytearray()
        self._waits = False

    def write(self, data: bytes) -> None:
        """Take `data`, however full it is; dropped once writing has failed."""
        if self.error is None:
            self._queue += data
            self._write()

    @property
    def full(self) -> bool:
        """Stop feeding it for now."""
        return len(self._queue) >= _FULL_BYTES

    @property
    def idle(self) -> bool:
        """Everything taken is written, or never will be."""
        return not self._queue

    def close(self) -> None:
        """Write no more; the descriptor stays open."""
        self._queue.clear()
        self._wait(False)

    def _write(self) -> None:
        written = 0
        try:
            with memoryview(self._queue) as view:
                while written < len(view):
                    written += os.write(self._descriptor, view[written : written + _SLICE])
        except BlockingIOError:
            pass
        except OSError as error:
            self.error, written = error, len(self._queue)
        del self._queue[:written]
        self._wait(bool(self._queue))

    def _wait(self, waits: bool) -> None:
        if waits and not self._waits:
            self._selector.register(self._descriptor, selectors.EVENT_WRITE, self._write)
        elif self._waits and not waits:
            self._selector.unregister(self._descriptor)
        self._waits = waits
