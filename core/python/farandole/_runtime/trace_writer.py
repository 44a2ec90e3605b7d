"""Writes the timeline of this process in a background thread."""

from __future__ import annotations

import os
import threading
import time
from collections import deque

from farandole._api.errors import ArgumentError
from farandole._runtime.native import core
from farandole._runtime.trace_events import Event, Lines
from farandole._runtime.trace_file import TraceFile

_INTERVAL_S = 0.2
_PATIENCE_S = 5.0  # how long `close` waits for the file system
_MOST_AT_ONCE = 32  # events that are formatted before other threads can run again
_MOST_KEPT = 1 << 15  # events that the core keeps
_READINGS = 10  # of the clocks; this thread may lose its processor between two of them


class TraceWriter:
    """Takes the core's events and appends them to a file.

    Thread safety: any thread may call the methods. `_taking` guards taking events and the order of lines. It is never
    held while a file is written, which the background thread alone does, so only that waits for a slow file system.
    """

    def __init__(self, path: str, title: str, rank: int, offset_ns: int, marks_batches: bool) -> None:
        """Start the timeline. `title`, `rank`, `offset_ns`: of this process in the trace. Raises ArgumentError."""
        self.process_id = os.getpid()
        self._path, self._title, self._lines = path, title, Lines(rank, offset_ns)
        self._file = self._begin(path)
        self._taking, self._wake = threading.Lock(), threading.Event()
        self._backlog: deque[list[str]] = deque()  # lines that must be written before further events
        self._is_closed = False
        core.start_timeline(marks_batches)
        self._thread = threading.Thread(target=self._run, name="farandole timeline writer", daemon=True)
        self._thread.start()

    def enter_world(self, epoch: int, rank: int, size: int) -> None:
        """Mark the start of a later world of an elastic job: further events belong to it."""
        with self._taking:
            self._take_all()
            self._backlog.append([self._lines.of_world(time.monotonic_ns(), epoch, rank, size)])

    def close(self) -> None:
        """Stop the timeline and write what is left. Gives up on a file system that does not respond."""
        with self._taking:
            if not self._is_closed:  # otherwise the core may already record another timeline
                core.stop_timeline()
                self._take_all()
                self._is_closed = True
        self._wake.set()
        self._thread.join(_PATIENCE_S)
        if self._thread.is_alive():
            _warn(
                f"the end of the timeline '{self._path}' has not been written, because the file system does not "
                "answer; the events before it are complete"
            )

    def _begin(self, path: str) -> TraceFile:
        """Create a file. Reads the time of day for each file, since it may be adjusted while the program runs."""
        zero_unix_ns = _unix_ahead_ns() + self._lines.offset_ns
        try:
            file = TraceFile(path)
            file.append(self._lines.of_rank(self._title, zero_unix_ns))
        except OSError as error:
            raise ArgumentError(f"a timeline cannot be written to '{path}': {error.strerror or error}") from None
        return file

    def _run(self) -> None:
        try:
            is_last = False
            while not is_last:
                self._wake.wait(_INTERVAL_S)
                is_last = self._is_closed  # read before taking lines, since `close` adds some before it sets this
                while lines := self._next():
                    self._file.append(lines)
        except OSError as error:
            self._give_up(error)
        self._file.close()

    def _next(self) -> list[str]:
        with self._taking:
            while self._backlog:
                if lines := self._backlog.popleft():
                    return lines
            return [] if self._is_closed else self._take(_MOST_AT_ONCE) or self._loss()

    def _take_all(self) -> None:
        self._backlog += self._take(_MOST_KEPT), self._loss()

    def _take(self, most: int) -> list[str]:
        return [line for record in core.take_events(most) for line in self._lines.of_event(Event._make(record))]

    def _loss(self) -> list[str]:
        lost = core.take_lost_events()
        return [self._lines.of_loss(time.monotonic_ns(), lost)] if lost else []

    def _give_up(self, error: OSError) -> None:
        with self._taking:
            if not self._is_closed:
                core.stop_timeline()
                self._is_closed = True
        why = error.strerror or error
        _warn(f"the timeline '{self._path}' cannot be written any further: {why}; training goes on without it")


def _unix_ahead_ns() -> int:
    """By how much the time of day is ahead of the monotonic clock: by the readings that lie closest together."""
    found = []
    for _ in range(_READINGS):
        before_ns, unix_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        found.append((after_ns - before_ns, unix_ns - (before_ns + after_ns) // 2))
    return min(found)[1]


def _warn(sentence: str) -> None:
    from farandole._start.log import logger  # here, since `import farandole` should not import logging

    logger.warning("%s", sentence)
