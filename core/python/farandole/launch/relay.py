"""From the ranks' pipes to our own stdout and stderr, to a log file per rank, and to the memory of their last lines."""

from __future__ import annotations

import errno
import os
import selectors
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from farandole._start.outcome_channel import piece
from farandole.launch.events import Event, JobEnded
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
from farandole.launch.verdict import TAIL_LINES
from farandole.launch.writer import Writer

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
    outcomes: int = -1  # the pipe for those of ranks that call a function
    events: int = -1  # the pipe for events, whose reader tells the user about the end; -1: we do


class OutputError(Exception):
    """The log files cannot be made; the message is one sentence for the user."""


@dataclass
class Destination:
    """Our stdout or stderr; one object for both when they are the same terminal, pipe or file."""

    screen: Screen
    writer: Writer
    paused: bool = False


@dataclass(eq=False)
class Stream:
    """One pipe from a rank."""

    descriptor: int


@dataclass(eq=False)
class ShownStream(Stream):
    """One that a destination shows. The descriptor is -1 where an agent on another host reads the pipe."""

    source: Source
    destination: Destination
    tail: deque[tuple[bytes, Destination]]  # shared by the two streams of a rank
    log: int | None


@dataclass(eq=False)
class OutcomeStream(Stream):
    """One that brings what the rank's function returned or raised."""

    rank: int
    destination: Destination


@dataclass
class Relay:
    """Owns the ranks' pipes. All methods are for the supervisor's thread; none of them blocks."""

    options: OutputOptions
    selector: selectors.BaseSelector
    wake: Callable[[], None]
    streams: list[Stream] = field(default_factory=list)  # pipes of this host
    _shown: list[ShownStream] = field(default_factory=list)  # these, and those of other hosts
    _tails: dict[int, deque[tuple[bytes, Destination]]] = field(default_factory=dict)
    logs_failed: bool = False
    _shown_lines: int = 0  # of all ranks, where our own messages go
    _shown_at_last: dict[int, int] = field(default_factory=dict)  # rank -> that number at its last line there

    def __post_init__(self) -> None:
        self._stdout = _destination(STDOUT, self.options, self.wake)
        same = _identity(STDOUT) == _identity(STDERR)
        self._stderr = self._stdout if same else _destination(STDERR, self.options, self.wake)
        self._events = Destination(PlainScreen(Style(), prompts=False), Writer(self.options.events, self.wake))
        self._outcomes = Destination(PlainScreen(Style(), prompts=False), Writer(self.options.outcomes, self.wake))
        self._destinations = [self._stdout] if same else [self._stdout, self._stderr]
        self._destinations += [self._outcomes] if self.options.outcomes >= 0 else []
        self._destinations += [self._events] if self.options.events >= 0 else []
        self._us = Source(LAUNCHER)
        self._waiting = Source(LAUNCHER)  # the line of `status`
        self._logs: dict[int, int] = {}

    def open_logs(self, ranks: Iterable[int]) -> None:
        """Make DIR/rank.N.log for each rank; OutputError if that is refused for another reason than lack of space."""
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
                raise OutputError(f"--output-dir: {error.filename}: {error.strerror}.") from error
            self._give_logs_up(error)

    def add(self, rank: int, stdout: int, stderr: int, outcome: int = -1) -> None:
        """Relay these pipes of `rank` from now on and close them at their end."""
        added: list[Stream] = [*self.add_remote(rank)]
        added[0].descriptor, added[1].descriptor = stdout, stderr
        added += [OutcomeStream(outcome, rank, self._outcomes)] if outcome >= 0 else []
        for stream in added:
            os.set_blocking(stream.descriptor, False)
            self.streams.append(stream)
            self._listen(stream)

    def add_remote(self, rank: int) -> tuple[ShownStream, ShownStream]:
        """The stdout and stderr of a rank elsewhere, for `feed` and `finish`."""
        tail = self._tails[rank] = deque(maxlen=TAIL_LINES)
        out, err = (
            ShownStream(-1, Source(rank), destination, tail, self._logs.get(rank))
            for destination in (self._stdout, self._stderr)
        )
        self._shown += [out, err]
        return out, err

    def start(self) -> None:
        """Begin to write what is there and what comes. REQUIRES that nothing is forked any more."""
        for destination in self._destinations:
            destination.writer.start()

    def say(self, message: str) -> None:
        """Print lines of our own on stderr, never inside a rank's line."""
        lines = (message + "\n").encode(errors="surrogateescape")
        self._stderr.writer.write(self._stderr.screen.lines(self._us, lines))

    def emit(self, event: Event) -> None:
        """Hand an event to the program that runs this job, if there is one."""
        if self.options.events >= 0:
            self._events.writer.write(event.to_json().encode() + b"\n")

    def end(self, ended: JobEnded) -> None:
        """Tell how the job has ended: the program that runs it, or the user."""
        if self.options.events >= 0:
            self.emit(ended)
            return
        if ended.sentences:
            self.say(ended.on_screen(name_of_rank(ended.culprit or 0, self.options.hosts)))

    def status(self, text: str) -> None:
        """Show what we wait for, where stderr is a terminal; "": nothing any more."""
        if isinstance(self._stderr.screen, TerminalScreen) and text.encode() != bytes(self._waiting.pending):
            self._stderr.writer.write(self._stderr.screen.status(self._waiting, text))

    def tail(self, rank: int) -> list[bytes]:
        """The last lines of a rank, without newlines."""
        return [line for line, _ in self._tails.get(rank, ())]

    def shows_tail(self, rank: int, most_lines: int, is_told: bool = False) -> bool:
        """Tell whether a rank's tail is in sight above our messages, with at most `most_lines` of others after it.

        The same lines of another rank will do: all ranks fail of one mistake, mostly.
        `is_told`: an exception has ended the rank; then it is enough that its last line, the exception's, stands there.
        """
        tail = list(self._tails.get(rank, ()))[-1 if is_told else 0 :]
        is_there = all(destination is self._stderr for _, destination in tail)
        alike = (each for each in self._tails if [*self._tails[each]][-len(tail) :] == tail) if tail else (rank,)
        last = max(self._shown_at_last.get(each, 0) for each in alike)
        return is_there and self._shown_lines - last <= most_lines

    @property
    def stdout_error(self) -> OSError | None:
        """Why stdout takes nothing any more."""
        return self._stdout.writer.error

    @property
    def flushed(self) -> bool:
        """Everything read is written."""
        return all(destination.writer.idle for destination in self._destinations)

    def wait_at_most(self) -> float | None:
        """In how many seconds `tick` is wanted."""
        return QUIET_SECONDS / 2 if any(stream.source.waiting_since is not None for stream in self._shown) else None

    def tick(self, now: float) -> None:
        """Show unfinished lines whose time has come; stop or go on reading as the writers get on."""
        for stream in self._shown:
            if stream.source.waiting_since is not None:
                stream.destination.writer.write(stream.destination.screen.unfinished(stream.source, now))
        for destination in self._destinations:
            if destination.paused != destination.writer.full:
                self._pause(destination, not destination.paused)

    def read(self, stream: Stream, now: float) -> bool:
        """Relay one chunk. False if there was nothing to read."""
        try:
            data = os.read(stream.descriptor, _CHUNK)
        except BlockingIOError:
            return False
        if data and isinstance(stream, OutcomeStream):
            self.feed_outcome(stream.rank, data)
        elif data and isinstance(stream, ShownStream):
            self.feed(stream, data, now)
        else:
            self._close(stream)
        return True

    def feed(self, stream: ShownStream, data: bytes, now: float) -> None:
        """Show what a rank has written."""
        self._pass_on(stream, stream.source.take(data, now))
        if stream.source.progress and len(data) < _CHUNK:  # a full chunk: there is more of this line to come
            stream.destination.writer.write(stream.destination.screen.unfinished(stream.source, now))

    def feed_outcome(self, rank: int, data: bytes) -> None:
        """Pass on some of what a rank's function returned or raised."""
        self._outcomes.writer.write(piece(rank, data))

    def finish(self, stream: ShownStream) -> None:
        """Nothing more comes from it."""
        self._pass_on(stream, stream.source.rest())
        self._shown.remove(stream)

    @property
    def is_full(self) -> bool:
        """Returns whether a destination is behind, so that `feed` should wait."""
        return any(destination.writer.full for destination in self._destinations)

    def drain(self, now: float) -> None:
        """All ranks are gone: read what their pipes still hold and close them, whoever else has them open."""
        for stream in list(self.streams):
            assert isinstance(stream, ShownStream | OutcomeStream)
            if not stream.destination.writer.full and not self.read(stream, now):
                self._close(stream)

    def _pause(self, destination: Destination, paused: bool) -> None:
        destination.paused = paused
        for stream in self.streams:
            if isinstance(stream, ShownStream | OutcomeStream) and stream.destination is destination:
                if paused:
                    self.selector.unregister(stream.descriptor)
                else:
                    self._listen(stream)

    def _pass_on(self, stream: ShownStream, lines: bytes) -> None:
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

    def _listen(self, stream: Stream) -> None:
        self.selector.register(stream.descriptor, selectors.EVENT_READ, stream)

    def _close(self, stream: Stream) -> None:
        assert isinstance(stream, ShownStream | OutcomeStream)
        if isinstance(stream, ShownStream):
            self.finish(stream)
        if not stream.destination.paused:
            self.selector.unregister(stream.descriptor)
        os.close(stream.descriptor)
        self.streams.remove(stream)


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
