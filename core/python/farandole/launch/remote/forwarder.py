"""The relay of an agent: what its ranks write goes to the launcher as it comes; the launcher makes lines of it."""

from __future__ import annotations

import os
import selectors
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from farandole._start import frames
from farandole.launch.relay import OutputOptions, Relay, Stream
from farandole.launch.writer import Outgoing

_CHUNK = 1 << 16


@dataclass(eq=False)
class _Pipe(Stream):
    """One pipe from a rank."""

    rank: int = -1
    pipe: int = frames.STDOUT


class Forwarder(Relay):
    """Sends output as frames. All methods are for the supervisor's thread; none of them blocks."""

    def __init__(self, options: OutputOptions, selector: selectors.BaseSelector, out: Outgoing) -> None:
        self.options, self.selector, self.streams = options, selector, []
        self._out, self._paused = out, False

    def open_logs(self, ranks: Iterable[int]) -> None:
        """The launcher has the log files."""

    def add(self, rank: int, stdout: int, stderr: int, outcome: int = -1) -> None:
        """See Relay."""
        for descriptor, pipe in ((stdout, frames.STDOUT), (stderr, frames.STDERR), (outcome, frames.OUTCOME)):
            if descriptor < 0:
                continue
            os.set_blocking(descriptor, False)
            stream = _Pipe(descriptor, rank=rank, pipe=pipe)
            self.streams.append(stream)
            if not self._paused:
                self._listen(stream)

    def start(self) -> None:
        """Writes without a thread."""

    def say(self, message: str) -> None:
        """Lines of our own: ssh shows them to the launcher, which shows them if the host is lost."""
        print(message, file=sys.stderr, flush=True)

    def tail(self, rank: int) -> list[bytes]:
        """The launcher remembers them."""
        return []

    def shows_tail(self, rank: int, most_lines: int, is_told: bool = False) -> bool:
        """The launcher judges."""
        return False

    @property
    def stdout_error(self) -> OSError | None:
        """The agent itself notices that the launcher gets nothing any more."""
        return None

    @property
    def flushed(self) -> bool:
        """See Relay."""
        return self._out.idle

    def wait_at_most(self) -> float | None:
        """See Relay."""
        return None

    def tick(self, now: float) -> None:
        """Stop or go on reading as the launcher gets on."""
        if self._paused == self._out.full:
            return
        self._paused = self._out.full
        for stream in self.streams:
            if self._paused:
                self.selector.unregister(stream.descriptor)
            else:
                self._listen(stream)

    def read(self, stream: Stream, now: float) -> bool:
        """Send one chunk on. False if there was nothing to read."""
        assert isinstance(stream, _Pipe)
        try:
            data = os.read(stream.descriptor, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._out.write(frames.output(stream.rank, stream.pipe, data))
        else:
            self._close(stream)
        return True

    def drain(self, now: float) -> None:
        """See Relay."""
        for stream in list(self.streams):
            if not self._out.full and not self.read(stream, now):
                self._close(stream)

    def _close(self, stream: Stream) -> None:
        if not self._paused:
            self.selector.unregister(stream.descriptor)
        os.close(stream.descriptor)
        self.streams.remove(stream)
