"""Copies the ranks' output to stdout and stderr and to a log file per rank, and remembers their last lines."""

from __future__ import annotations

import errno
import os
import selectors
import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from farandole._start import frames
from farandole.launch.events import Event, JobEnded
from farandole.launch.head.failure_report import TAIL_LINES
from farandole.launch.output import (
    LAUNCHER,
    QUIET_SECONDS,
    PlainScreen,
    Screen,
    Source,
    Style,
    TerminalScreen,
    name_of_rank,
)
from farandole.launch.spec import SpecError
from farandole.launch.writer import Outgoing, Writer

STDIN = 0
STDOUT = 1
STDERR = 2
_TAIL_LINE_BYTES = 2000
_CHUNK = 1 << 16


@dataclass(frozen=True)
class OutputOptions:
    """How the output of the ranks is shown."""

    prefix: bool = True
    timestamp: bool = False
    directory: Path | None = None
    no_color: bool = False
    force_color: bool = False
    dumb_terminal: bool = False
    verbose: bool = False
    hosts: dict[int, str] = field(default_factory=dict)  # of each rank, newcomers added, where there are several
    continues_logs: bool = False  # of an earlier line of the job
    program: int = -1  # the pipe to the program that runs the job, which tells the user about the end; -1: we do


@dataclass(eq=False)
class Pipe:
    """One pipe from a rank. It is not read while the writer of its data is full."""

    descriptor: int
    writer: Writer | Outgoing
    feed: Callable[[bytes, float], None]
    finish: Callable[[], None] = lambda: None


class Pipes:
    """The ranks' pipes on this host. All methods are for the supervisor's thread; none of them blocks."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.open: list[Pipe] = []
        self._selector = selector
        self._paused: set[Writer | Outgoing] = set()

    def add(self, pipe: Pipe) -> None:
        """Read it from now on, and close it at its end."""
        os.set_blocking(pipe.descriptor, False)
        self.open.append(pipe)
        if pipe.writer not in self._paused:
            self._listen(pipe)

    def throttle(self) -> None:
        """Pause the pipes of writers that are full, and resume those of others."""
        for writer in {pipe.writer for pipe in self.open}:
            if writer.full and writer not in self._paused:
                self._paused.add(writer)
                for pipe in self._of(writer):
                    self._selector.unregister(pipe.descriptor)
            elif not writer.full and writer in self._paused:
                self._paused.remove(writer)
                for pipe in self._of(writer):
                    self._listen(pipe)

    def read(self, pipe: Pipe, now: float) -> bool:
        """Take one chunk. False if there was nothing to read."""
        try:
            data = os.read(pipe.descriptor, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            pipe.feed(data, now)
        else:
            self._close(pipe)
        return True

    def drain(self, now: float) -> None:
        """All ranks are gone: read what is left in their pipes and close them, even if others have them open."""
        for pipe in list(self.open):
            if not pipe.writer.full and not self.read(pipe, now):
                self._close(pipe)

    def _of(self, writer: Writer | Outgoing) -> list[Pipe]:
        return [pipe for pipe in self.open if pipe.writer is writer]

    def _listen(self, pipe: Pipe) -> None:
        self._selector.register(pipe.descriptor, selectors.EVENT_READ, pipe)

    def _close(self, pipe: Pipe) -> None:
        pipe.finish()
        if pipe.writer not in self._paused:
            self._selector.unregister(pipe.descriptor)
        os.close(pipe.descriptor)
        self.open.remove(pipe)


@dataclass(eq=False)
class Destination:
    """Our stdout or stderr; one object for both when they are the same terminal, pipe or file."""

    screen: Screen
    writer: Writer


@dataclass(eq=False)
class Stream:
    """The stdout or stderr of a rank, on this host or another."""

    source: Source
    destination: Destination
    tail: deque[tuple[bytes, Destination]]  # shared by the two streams of a rank
    log: int | None


class Relay:
    """Shows the output of ranks. All methods are for the supervisor's thread; none of them blocks."""

    def __init__(self, options: OutputOptions, selector: selectors.BaseSelector, wake: Callable[[], None]) -> None:
        self.options, self.pipes = options, Pipes(selector)
        self.logs_failed = False
        self._shown: list[Stream] = []
        self._tails: dict[int, deque[tuple[bytes, Destination]]] = {}
        self._shown_lines = 0  # of all ranks, where our own messages go
        self._shown_at_last: dict[int, int] = {}  # rank -> that number at its last line there
        self._stdout = _destination(STDOUT, options, wake)
        same = _identity(STDOUT) == _identity(STDERR)
        self._stderr = self._stdout if same else _destination(STDERR, options, wake)
        self._program = Writer(options.program, wake)
        writers = [self._stdout.writer, *([] if same else [self._stderr.writer])]
        self._writers = [*writers, self._program] if options.program >= 0 else writers
        self._us = Source(LAUNCHER)
        self._waiting = Source(LAUNCHER)  # the line of `status`
        self._logs: dict[int, int] = {}

    def open_logs(self, ranks: Iterable[int]) -> None:
        """Make DIR/rank.N.log for each rank; SpecError if that is refused for another reason than lack of space."""
        directory = self.options.directory
        if directory is None:
            return
        begin = 0 if self.options.continues_logs else os.O_TRUNC
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for rank in ranks:
                flags = os.O_WRONLY | os.O_CREAT | begin | os.O_APPEND | os.O_CLOEXEC
                self._logs[rank] = os.open(directory / f"rank.{rank}.log", flags, 0o666)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise SpecError(f"--output-dir: {error.filename}: {error.strerror}.", "output_dir") from error
            self._give_logs_up(error)

    def add(self, rank: int, stdout: int, stderr: int, outcome: int = -1) -> None:
        """Relay these pipes of `rank` from now on and close them at their end."""
        for descriptor, stream in zip((stdout, stderr), self.add_remote(rank), strict=True):
            feed, finish = partial(self.feed, stream), partial(self.finish, stream)
            self.pipes.add(Pipe(descriptor, stream.destination.writer, feed, finish))
        if outcome >= 0:
            self.pipes.add(Pipe(outcome, self._program, lambda data, _now: self.feed_outcome(rank, data)))

    def add_remote(self, rank: int) -> tuple[Stream, Stream]:
        """The stdout and stderr of a rank elsewhere, for `feed` and `finish`."""
        tail = self._tails[rank] = deque(maxlen=TAIL_LINES)
        out, err = (
            Stream(Source(rank), destination, tail, self._logs.get(rank))
            for destination in (self._stdout, self._stderr)
        )
        self._shown += [out, err]
        return out, err

    def start(self) -> None:
        """Start writing. REQUIRES: no process is forked afterwards."""
        for writer in self._writers:
            writer.start()

    def say(self, message: str) -> None:
        """Print the launcher's own lines on stderr, never inside a rank's line."""
        lines = (message + "\n").encode(errors="surrogateescape")
        self._stderr.writer.write(self._stderr.screen.lines(self._us, lines))

    def emit(self, event: Event) -> None:
        """Hand an event to the program that runs this job, if there is one."""
        if self.options.program >= 0:
            self._program.write(event.to_frame())

    def end(self, ended: JobEnded) -> None:
        """Report how the job has ended, to the program that runs it or to the user."""
        if self.options.program >= 0:
            self.emit(ended)
            return
        if ended.sentences:
            self.say(ended.on_screen(name_of_rank(ended.culprit or 0, self.options.hosts)))

    def status(self, text: str) -> None:
        """Show a status line if stderr is a terminal; "" removes it."""
        if isinstance(self._stderr.screen, TerminalScreen) and text.encode() != bytes(self._waiting.pending):
            self._stderr.writer.write(self._stderr.screen.status(self._waiting, text))

    def tail(self, rank: int) -> list[bytes]:
        """The last lines of a rank, without newlines."""
        return [line for line, _ in self._tails.get(rank, ())]

    def shows_tail(self, rank: int, most_lines: int, has_raised: bool = False) -> bool:
        """Tell whether a rank's tail is in sight above our messages, with at most `most_lines` of others after it.

        The same lines of another rank count, too: usually all ranks fail with the same error.
        `has_raised`: an exception has ended the rank; then its last line, the exception's, is enough.
        """
        tail = list(self._tails.get(rank, ()))[-1 if has_raised else 0 :]
        is_there = all(destination is self._stderr for _, destination in tail)
        alike = (each for each in self._tails if [*self._tails[each]][-len(tail) :] == tail) if tail else (rank,)
        last = max(self._shown_at_last.get(each, 0) for each in alike)
        return is_there and self._shown_lines - last <= most_lines

    @property
    def stdout_error(self) -> OSError | None:
        """The error that ended writing to stdout, or None."""
        return self._stdout.writer.error

    @property
    def flushed(self) -> bool:
        """Everything read is written."""
        return all(writer.idle for writer in self._writers)

    def wait_at_most(self) -> float | None:
        """Seconds until `tick` must be called."""
        return QUIET_SECONDS / 2 if any(stream.source.waiting_since is not None for stream in self._shown) else None

    def tick(self, now: float) -> None:
        """Show unfinished lines that are due; pause and resume reading as the writers fall behind and catch up."""
        for stream in self._shown:
            if stream.source.waiting_since is not None:
                stream.destination.writer.write(stream.destination.screen.unfinished(stream.source, now))
        self.pipes.throttle()

    def feed(self, stream: Stream, data: bytes, now: float) -> None:
        """Show what a rank has written."""
        self._pass_on(stream, stream.source.take(data, now))
        if stream.source.progress and len(data) < _CHUNK:  # a full chunk: there is more of this line to come
            stream.destination.writer.write(stream.destination.screen.unfinished(stream.source, now))

    def feed_outcome(self, rank: int, data: bytes) -> None:
        """Pass on some of what a rank's function returned or raised."""
        self._program.write(frames.output(rank, frames.OUTCOME, data))

    def finish(self, stream: Stream) -> None:
        """The stream has ended."""
        self._pass_on(stream, stream.source.rest())
        self._shown.remove(stream)

    @property
    def is_full(self) -> bool:
        """Return whether a destination is behind, so that `feed` should wait."""
        return any(writer.full for writer in self._writers)

    def _pass_on(self, stream: Stream, lines: bytes) -> None:
        if not lines:
            return
        stream.destination.writer.write(stream.destination.screen.lines(stream.source, lines))
        if stream.destination is self._stderr:
            self._shown_lines += lines.count(b"\n")
            self._shown_at_last[stream.source.rank] = self._shown_lines
        last = lines[:-1].rsplit(b"\n", TAIL_LINES)[-TAIL_LINES:]
        stream.tail.extend((line[-_TAIL_LINE_BYTES:], stream.destination) for line in last)
        if stream.log is not None and not self.logs_failed:
            self._write_log(stream.log, lines)

    def _write_log(self, log: int, lines: bytes) -> None:
        view = memoryview(lines)
        try:
            while view:
                view = view[os.write(log, view) :]
        except OSError as error:
            self._give_logs_up(error)

    def _give_logs_up(self, error: OSError) -> None:
        self.logs_failed = True
        self.say(
            f"farandole: cannot write to {self.options.directory}: {error.strerror}; "
            "training goes on without its log files."
        )


class Forwarder(Relay):
    """The relay of an agent: passes the output of its ranks on to the launcher, which splits it into lines."""

    def __init__(self, options: OutputOptions, selector: selectors.BaseSelector, out: Outgoing) -> None:
        self.options, self.pipes, self._out = options, Pipes(selector), out

    def open_logs(self, ranks: Iterable[int]) -> None:
        """The launcher has the log files."""

    def add(self, rank: int, stdout: int, stderr: int, outcome: int = -1) -> None:
        """See Relay."""

        def send(pipe: int, data: bytes, _now: float) -> None:
            self._out.write(frames.output(rank, pipe, data))

        for descriptor, pipe in ((stdout, frames.STDOUT), (stderr, frames.STDERR), (outcome, frames.OUTCOME)):
            if descriptor >= 0:
                self.pipes.add(Pipe(descriptor, self._out, partial(send, pipe)))

    def start(self) -> None:
        """Writes without a thread, since ranks are still to be forked."""

    def say(self, message: str) -> None:
        """Print the agent's own lines: ssh passes them to the launcher, which shows them if the host is lost."""
        print(message, file=sys.stderr, flush=True)

    @property
    def stdout_error(self) -> OSError | None:
        """None: the agent itself notices a lost connection."""
        return None

    @property
    def flushed(self) -> bool:
        """See Relay."""
        return self._out.idle

    def wait_at_most(self) -> float | None:
        """See Relay."""
        return None

    def tick(self, now: float) -> None:
        """See Relay."""
        self.pipes.throttle()


def _identity(descriptor: int) -> tuple[int, int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_rdev


def _destination(descriptor: int, options: OutputOptions, wake: Callable[[], None]) -> Destination:
    terminal = os.isatty(descriptor) and not options.dumb_terminal
    color = not options.no_color and (options.force_color or terminal)
    style = Style(options.prefix, options.timestamp, color, hosts=options.hosts)
    screen: Screen
    if terminal:
        screen = TerminalScreen(style, columns=partial(_columns, descriptor))
    else:
        screen = PlainScreen(style, prompts=_identity(STDIN) != _identity_of_null())
    return Destination(screen, Writer(descriptor, wake))


def _columns(terminal: int) -> int:
    try:
        return os.get_terminal_size(terminal).columns or 80
    except OSError:
        return 80


def _identity_of_null() -> tuple[int, int, int]:
    status = os.stat(os.devnull)
    return status.st_dev, status.st_ino, status.st_rdev
