r"""A file that is a valid JSON array after every append, even if the process is killed.

Each append overwrites the end of the array and writes a new one:

    [\n{...},\n{...}\n]\n
    [\n{...},\n{...}      <- the next append writes from here: ,\n{...}\n]\n

A process can also be killed during a write, between two pages. So no event crosses the end of a page unless it is
longer than a page; spaces fill the rest. Then only the end of the array can be missing, which trace viewers accept.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable

END = b"\n]\n"
_PAGE_BYTES = 4096


class TraceFile:
    """Thread safety: one thread at a time."""

    def __init__(self, path: str) -> None:
        """Create or truncate the file. Raises OSError."""
        self._file = io.FileIO(path, "wb")
        self._end = 0  # where the next event goes
        self._has_events = False
        try:
            self._write(b"[")
        except OSError:
            self.close()
            raise

    def append(self, events: Iterable[str]) -> None:
        """Write events, one per line. Raises OSError; then the array still has the earlier events."""
        text = bytearray()
        for event in events:
            line = (b",\n" if self._has_events else b"\n") + event.encode()
            self._has_events = True
            used = (self._end + len(text)) % _PAGE_BYTES
            if used and used + len(line) + len(END) > _PAGE_BYTES:
                text += b" " * (_PAGE_BYTES - used)
            text += line
        if text:
            self._write(text)

    def close(self) -> None:
        """Close the file. The array needs no further end."""
        self._file.close()

    def _write(self, text: bytes | bytearray) -> None:
        rest, at = memoryview(text + END), self._end
        try:
            while rest:
                written = os.pwrite(self._file.fileno(), rest, at)
                rest, at = rest[written:], at + written
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), self._end)  # where the array ended before
                os.pwrite(self._file.fileno(), END, self._end)
            raise
        self._end += len(text)
