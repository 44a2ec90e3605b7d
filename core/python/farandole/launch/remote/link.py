"""The launcher's end of one agent: its process (ssh, or the agent itself on this host), its pipes, its ranks."""

from __future__ import annotations

import errno
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from farandole.launch import guard
from farandole.launch.relay import ShownStream
from farandole.launch.remote import frames
from farandole.launch.remote.outgoing import Outgoing

NO_AGENT_REMEDY = "look for what its shell prints at a login without a terminal"
_CHUNK = 1 << 16
_MOST_STDERR_BYTES = 1 << 14
_MOST_READS = 16  # empty a pipe of 1 MiB
_CALL_PIECE = 1 << 20


@dataclass(eq=False)
class Link:
    """One host. `process` is the child that reaches its agent."""

    name: str
    process: subprocess.Popen[bytes]
    selector: selectors.BaseSelector
    is_local: bool  # the process is the agent itself, on this host
    on_frame: Callable[[Link, frames.Message | frames.Output], None]
    streams: dict[int, tuple[ShownStream, ShownStream]] = field(default_factory=dict)  # of ranks that live there
    reader: frames.FrameReader = field(default_factory=frames.FrameReader)
    stderr: bytearray = field(default_factory=bytearray)  # its last bytes
    greeted: bool = False
    done: bool = False  # the agent has said that nothing is left there
    ended_by: tuple[str, int] | None = None  # a signal, by which somebody there ended the agent, and its exit code
    code: int | None = None  # of the process, once it has ended
    error: str = ""  # why we do not understand it
    heard_at: float = field(default_factory=time.monotonic)
    _paused: bool = False
    _call_sent: int = 0  # bytes

    def __post_init__(self) -> None:
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self._out = Outgoing(self.process.stdin.fileno(), self.selector)
        self._open: dict[int, Callable[[], None]] = {}
        for pipe, read in ((self.process.stdout, self._read), (self.process.stderr, self._read_stderr)):
            os.set_blocking(pipe.fileno(), False)
            self._open[pipe.fileno()] = read
            self.selector.register(pipe.fileno(), selectors.EVENT_READ, read)

    def say(self, kind: str, **content: Any) -> None:
        """Send a message to the agent."""
        if self.code is None:
            self._out.write(frames.message(kind, **content))

    def send_call(self, call: int) -> bool:
        """Send more of the function behind this descriptor, while there is room. Returns whether some is under way."""
        if self.code is not None:
            return False
        while not self._out.full and (piece := os.pread(call, _CALL_PIECE, self._call_sent)):
            self._out.write(frames.call_piece(piece))
            self._call_sent += len(piece)
        return not self._out.idle

    def hang_up(self) -> None:
        """Close the agent's stdin, at which it kills what it has started and ends."""
        assert self.process.stdin
        self._out.close()
        if not self.process.stdin.closed:
            self.process.stdin.close()

    def kill(self) -> None:
        """SIGKILL the process, unless it has ended: until we reap it, the id is its own."""
        if self.code is None:
            os.kill(self.process.pid, signal.SIGKILL)

    def end(self, code: int) -> None:
        """The process has ended: read what its pipes still hold, and close them."""
        self.code = code
        self.pause(False)
        for descriptor, read in list(self._open.items()):
            for _ in range(_MOST_READS):  # a child that the process left behind may write without end
                if descriptor in self._open and self._has_more(descriptor):
                    read()
        for descriptor in list(self._open):
            self._close(descriptor)
        self.hang_up()

    def pause(self, paused: bool) -> None:
        """Stop or go on reading what the agent says."""
        assert self.process.stdout
        descriptor = self.process.stdout.fileno() if not self.process.stdout.closed else -1
        if paused != self._paused and descriptor in self._open:
            if paused:
                self.selector.unregister(descriptor)
            else:
                self.selector.register(descriptor, selectors.EVENT_READ, self._open[descriptor])
            self._paused = paused

    def _has_more(self, descriptor: int) -> bool:
        with selectors.SelectSelector() as now:
            now.register(descriptor, selectors.EVENT_READ)
            return bool(now.select(0))

    def _read(self) -> None:
        assert self.process.stdout
        if not (data := self._take(self.process.stdout.fileno())):
            return
        self.heard_at = time.monotonic()
        try:
            for frame in self.reader.feed(data):
                if isinstance(frame, frames.CallPiece):
                    raise frames.FrameError("it sends a function")
                self.on_frame(self, frame)
        except frames.FrameError as error:
            self.error = f"{self.name} does not answer like an agent: {error}"
            self.kill()
            if self.process.stdout.fileno() in self._open:  # more of this is of no use
                self._close(self.process.stdout.fileno())

    def _read_stderr(self) -> None:
        assert self.process.stderr
        self.stderr += self._take(self.process.stderr.fileno())
        del self.stderr[:-_MOST_STDERR_BYTES]

    def _take(self, descriptor: int) -> bytes:
        """b"" at the end, which closes the pipe, and where there is nothing yet."""
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return b""
        if not data:
            self._close(descriptor)
        return data

    def _close(self, descriptor: int) -> None:
        """The pipe itself is closed with the process object."""
        if not (self._paused and self.process.stdout and descriptor == self.process.stdout.fileno()):
            self.selector.unregister(descriptor)
        del self._open[descriptor]


def start(words: Sequence[str], environment: Mapping[str, str], has_threads: bool = False) -> subprocess.Popen[bytes]:
    """Start the command that reaches an agent. It dies with us. Raises OSError.

    REQUIRES one thread, unless the launcher `has_threads`: then another program does in its place, see `local.start`.
    """
    launcher = os.getpid()
    if has_threads:
        if (path := shutil.which(words[0])) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), words[0])
        words = [sys.executable, "-m", "farandole.launch.begin", str(launcher), "", path, *words[1:]]

    def prepare() -> None:
        guard.die_with_parent(launcher)
        for signum in guard.HANDLED:
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    return subprocess.Popen(
        words,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for us, which pass it on
        preexec_fn=None if has_threads else prepare,  # noqa: PLW1509  (we have one thread)
    )
