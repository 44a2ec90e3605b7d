"""Writing to a destination that may be slow, stuck or gone, without ever holding up the supervisor.

`Writer` has a thread, for descriptors that others use, too; `Outgoing` makes a pipe of its own non-blocking.
"""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Callable

_FULL_BYTES = 4 << 20
_SLICE = 1 << 16


class Writer:
    """A bounded queue and one thread that writes it to a descriptor.

    All methods are for the supervisor's thread. `wake` is called on the writer's thread when there is something new to
    see: room again, everything written, or an error.
    """

    def __init__(self, descriptor: int, wake: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._wake = wake
        self._changed = threading.Condition()
        self._queue: list[bytes] = []  # guarded by _changed, as the next two
        self._queued_bytes = 0
        self._error: OSError | None = None

    def start(self) -> None:
        """Begin to write. Ranks are forked before: while there is one thread only."""
        threading.Thread(target=self._run, name="farandole-writer", daemon=True).start()

    def write(self, data: bytes) -> None:
        """Take `data`, however full it is; dropped once writing has failed."""
        if not data:
            return
        with self._changed:
            if self._error is None:
                self._queue.append(data)
                self._queued_bytes += len(data)
                self._changed.notify()

    @property
    def full(self) -> bool:
        """Stop feeding it for now."""
        return self._queued_bytes >= _FULL_BYTES

    @property
    def idle(self) -> bool:
        """Everything taken is written, or never will be."""
        return self._queued_bytes == 0

    @property
    def error(self) -> OSError | None:
        """Why it does not write any more."""
        return self._error

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue:
                    self._changed.wait()
                data = b"".join(self._queue)
                self._queue.clear()
            self._write_all(data)
            self._wake()

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                written = os.write(self._descriptor, view[:_SLICE])
            except OSError as error:
                with self._changed:
                    self._error, self._queued_bytes = error, 0
                    self._queue.clear()
                return
            view = view[written:]
            with self._changed:
                self._queued_bytes -= written


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
