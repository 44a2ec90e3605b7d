"""The launcher's end of an agent: the connection to it, its frames, its ranks.

The connection is a process (ssh, or the agent itself on this host), or a socket by which the agent has dialled in.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from farandole._start import frames
from farandole.launch import guard
from farandole.launch.head import ssh
from farandole.launch.relay import Stream
from farandole.launch.writer import Outgoing

NO_AGENT_REMEDY = "look for what its shell prints at a login without a terminal"
_CHUNK = 1 << 16
_MOST_STDERR_BYTES = 1 << 14
_MOST_READS = 16  # empty a pipe of 1 MiB
_CALL_PIECE = 1 << 20


@dataclass(eq=False)
class Link:
    """One host. `process` is the child that reaches its agent; without one there is a connection, whose key is proved.

    `is_launcher`: the agent is the launcher of a node, which shows the output of its ranks itself; nothing vouches for
    what comes after its proof.
    """

    name: str
    selector: selectors.BaseSelector
    on_frame: Callable[[Link, frames.Message | frames.Output], None]
    process: subprocess.Popen[bytes] | None = None
    connection: socket.socket | None = None
    is_local: bool = False  # the process is the agent itself, on this host
    is_launcher: bool = False
    streams: dict[int, tuple[Stream, Stream]] = field(default_factory=dict)  # of ranks that live there
    reader: frames.FrameReader = field(default_factory=frames.FrameReader)
    stderr: bytearray = field(default_factory=bytearray)  # its last bytes
    greeted: bool = False
    done: bool = False  # the agent has said that nothing is left there
    ended_by: tuple[str, int] | None = None  # a signal, by which somebody there ended the agent, and its exit code
    code: int | None = None  # of the process, once it has ended; of a connection as if it were one
    error: str = ""  # why we do not understand it
    heard_at: float = field(default_factory=time.monotonic)
    why: str = "it was closed"  # of the end of a connection, if the system says nothing
    _paused: bool = False
    _call_sent: int = 0  # bytes

    def __post_init__(self) -> None:
        self._open: dict[int, Callable[[], None]] = {}
        if self.connection is not None:
            commands, self._answers = self.connection.fileno(), os.dup(self.connection.fileno())
        else:
            process = self._process
            assert process.stdin and process.stdout and process.stderr
            commands, self._answers = process.stdin.fileno(), process.stdout.fileno()
            self._listen(process.stderr.fileno(), self._read_stderr)
        self._out = Outgoing(commands, self.selector)
        self._listen(self._answers, self._read)

    @property
    def _process(self) -> subprocess.Popen[bytes]:
        assert self.process is not None
        return self.process

    @property
    def agent(self) -> str:
        """The name of the program there, for messages."""
        return f"the launcher of {self.name}" if self.is_launcher else "its agent there"

    @property
    def is_closed(self) -> bool:
        """Return whether the connection has ended, so that `end` must be called."""
        is_over = self._answers not in self._open or (self.is_launcher and self.done)  # its own output may take longer
        return self.connection is not None and self.code is None and is_over

    def how_it_ended(self) -> str:
        """How the connection ended unexpectedly, as a sentence."""
        if self.connection is not None:
            return f"the connection to {self.agent} ended: {self.why}"
        last = ssh.last_line(self.stderr.decode(errors="replace"))
        return f"the connection to {self.name} ended with {ssh.manner(self.code or 0)}{last}"

    def say(self, kind: str, **content: Any) -> None:
        """Send a message to the agent."""
        if self.code is None:
            self._out.write(frames.message(kind, **content))

    def send_call(self, call: int) -> bool:
        """Send more of the function behind this descriptor, while there is room. Returns whether it is incomplete."""
        if self.code is not None:
            return False
        while not self._out.full and (piece := os.pread(call, _CALL_PIECE, self._call_sent)):
            self._out.write(frames.output(0, frames.CALL, piece))
            self._call_sent += len(piece)
        return not self._out.idle

    def hang_up(self) -> None:
        """Close the agent's input, whereupon it kills what it has started and ends."""
        self._out.close()
        if self.connection is not None:
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_WR)
        elif self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()

    def kill(self) -> None:
        """End the connection to the agent at once. Until we reap its process, the id is its own."""
        if self.connection is not None:
            self._close(self._answers)
        elif self.code is None:
            os.kill(self._process.pid, signal.SIGKILL)

    def end(self, code: int) -> None:
        """The connection has ended: read what is still there, and close it."""
        self.code = code
        self.pause(False)
        for descriptor, read in list(self._open.items()):
            for _ in range(_MOST_READS):  # a child that the process left behind may write without end
                if descriptor in self._open and self._has_more(descriptor):
                    read()
        for descriptor in list(self._open):
            self._close(descriptor)
        self.hang_up()
        if self.process is not None:
            self.process.returncode = code
        if self.connection is not None:
            os.close(self._answers)
            self.connection.close()

    def pause(self, paused: bool) -> None:
        """Stop or go on reading what the agent says, unless it sends no output."""
        if paused != self._paused and self._answers in self._open and not self.is_launcher:
            if paused:
                self.selector.unregister(self._answers)
            else:
                self.selector.register(self._answers, selectors.EVENT_READ, self._open[self._answers])
            self._paused = paused

    def _has_more(self, descriptor: int) -> bool:
        with selectors.SelectSelector() as now:
            now.register(descriptor, selectors.EVENT_READ)
            return bool(now.select(0))

    def _listen(self, descriptor: int, read: Callable[[], None]) -> None:
        os.set_blocking(descriptor, False)
        self._open[descriptor] = read
        self.selector.register(descriptor, selectors.EVENT_READ, read)

    def _read(self) -> None:
        if not (data := self._take(self._answers)):
            return
        self.heard_at = time.monotonic()
        try:
            for frame in self.reader.feed(data):
                if isinstance(frame, frames.Output) and frame.pipe == frames.CALL:
                    raise frames.FrameError("it sends a function")
                self.on_frame(self, frame)
        except frames.FrameError as error:
            self.error = f"{self.name} does not answer like an agent: {error}"
            self._give_up()
        except (KeyError, TypeError, ValueError):
            if not self.is_launcher:
                raise
            self.why = "it sent an invalid message"
            self._give_up()

    def _give_up(self) -> None:
        """Stop reading: what follows is of no use."""
        self.kill()
        self._close(self._answers)

    def _read_stderr(self) -> None:
        assert self._process.stderr
        self.stderr += self._take(self._process.stderr.fileno())
        del self.stderr[:-_MOST_STDERR_BYTES]

    def _take(self, descriptor: int) -> bytes:
        """b"" at the end, which closes the pipe, and where there is nothing yet."""
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return b""
        except ConnectionResetError:  # as an end, where the other process had not read everything
            data = b""
        except OSError as error:  # of a connection
            self.why, data = error.strerror or str(error), b""
        if not data:
            self._close(descriptor)
        return data

    def _close(self, descriptor: int) -> None:
        """The pipe itself is closed with the object that has it."""
        if self._open.pop(descriptor, None) and not (self._paused and descriptor == self._answers):
            self.selector.unregister(descriptor)


def start(
    args: Sequence[str], environment: Mapping[str, str], has_threads: bool = False, inherits: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start the command that reaches an agent. Raises OSError. `inherits`: descriptors. See guard.start_child."""
    path = shutil.which(args[0]) if has_threads else args[0]
    if path is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), args[0])
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return guard.start_child([path, *args[1:]], has_threads, env=environment, pass_fds=inherits, **pipes)
