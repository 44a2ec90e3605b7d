"""Writing to a destination that may be slow, stuck or gone, without ever holding up the supervisor."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

_FULL = 4 << 20
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
        return self._queued_bytes >= _FULL

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
