"""Writes commits outside the rank, in the background.

`commit()` only hands over a copy. While one copy is written, the next one waits, and a later one replaces it, so at
most two copies are in memory. A failure is reported once, and the job goes on: the previous commit is still complete.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from farandole._elastic.commit_file import Copy, Piece
from farandole._start.log import logger

_FLUSH_SECONDS = 10.0


class Destination(Protocol):
    """A place that stores commits."""

    @property
    def name(self) -> str:
        """The name for messages."""

    def prepare(self) -> None:
        """Check that it can be used. Raises OSError."""

    def write(self, run: int, commits: int, pieces: Sequence[Piece]) -> None:
        """Store a commit. Raises one of `connection.FAILURES`."""

    def newest(self, run: int) -> Copy | None:
        """Return the newest commit of an `elastic.run`. Raises one of `connection.FAILURES`."""


class CommitWriter:
    """Writes the commits of this rank to a destination."""

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self._changed = threading.Condition()
        self._waiting: tuple[int, int, Sequence[Piece]] | None = None
        self._is_busy = False
        self._reported = ""
        self._thread: threading.Thread | None = None

    def save(self, run: int, commits: int, pieces: Sequence[Piece]) -> None:
        """Hand over a copy, which must not change any more. It replaces a copy that is still waiting."""
        with self._changed:
            self._waiting = run, commits, pieces
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def flush(self, seconds: float = _FLUSH_SECONDS) -> bool:
        """Wait up to `seconds` until the last copy is written. Returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting is None and not self._is_busy, seconds)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting is not None)
                assert self._waiting is not None
                (run, commits, pieces), self._waiting, self._is_busy = self._waiting, None, True
            try:
                self.destination.write(run, commits, pieces)
                self._reported = ""
            except Exception as error:  # after any error, the next commit is tried again
                self._report(commits, error)
            del pieces  # free the memory before the next commit

    def _report(self, commits: int, error: Exception) -> None:
        why = (isinstance(error, OSError) and error.strerror) or str(error)
        if why != self._reported:
            self._reported = why
            logger.warning(
                "commit %d could not be saved %s (%s); the job goes on, and the previous commit stays.",
                commits,
                self.destination.name,
                why,
            )
