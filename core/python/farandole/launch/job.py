"""Runs a job for a program: `farandole.launch.run`. The launcher is a child process, so the program's own signal
handlers, threads and children are left alone.

The child is in a session of its own: a terminal's Ctrl-C reaches the program only, which passes it on once. It ends
with the program, even where that is killed. The thread that calls `run` reads the pipes, since a notebook shows lines
in the cell whose thread writes them.

    spec                         memory of the child
    stdout, stderr of ranks      straight to ours; where sys.stdout or sys.stderr is another object, by a pipe
    events, outcomes of ranks    a pipe of frames; outcomes are those of `farandole.run`
"""

from __future__ import annotations

import codecs
import fcntl
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from farandole._start.frames import FrameReader, Output
from farandole.launch import events
from farandole.launch.events import Event, JobEnded
from farandole.launch.spec import JobSpec, SpecError

_CHUNK = 1 << 16
_STDOUT, _STDERR = 1, 2


class Shown(Protocol):
    """A stream that shows lines."""

    def write(self, text: str, /) -> object:
        """Take text."""

    def flush(self) -> object:
        """Show it."""


@dataclass
class JobResult:
    """The end of a job that could be started."""

    exit_code: int
    ended: JobEnded
    outcomes: dict[int, bytearray] = field(default_factory=dict)  # of `farandole.run`, by rank, as they came


class Stop:
    """Ends a job from another thread than that which runs it."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()

    def fileno(self) -> int:
        """Readable when the job is to end."""
        return self._reader.fileno()

    def interrupt(self) -> None:
        """Do as Ctrl-C: the ranks have the grace to end; at the second time they are killed."""
        self._writer.send(b"\0")


@dataclass(frozen=True)
class Function:
    """The function that `farandole.run` and clusters pass to the launcher."""

    call: int = -1  # descriptor of the memory with the function and its arguments
    cluster: str = ""  # in whose tasks the agents run
    server: str = ""  # the abstract socket that has the connections to them


def run(
    spec: JobSpec,
    on_event: Callable[[Event], object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
    stdout: Shown | None = None,
    stderr: Shown | None = None,
    stop: Stop | None = None,
    function: Function = Function(),
) -> JobResult:
    """Run a job to its end. All its processes have ended when this returns or raises.

    Works in any thread, in a notebook, and in asyncio by `await asyncio.to_thread(run, spec)`.

    Args:
        spec: the job.
        on_event: called in this thread with each event of `farandole.launch.events`; what it raises ends the job.
        environment: of the launcher, by default that of this process.
        folder: the working directory, likewise.
        stdout: where the lines of ranks appear, by default `sys.stdout`.
        stderr: the same for their stderr and the launcher's sentences.
        stop: lets another thread end the job.
        function: for `farandole.run`.

    Raises:
        SpecError: the job cannot be started; `field` names the leaf of the spec, if one is to blame.
        KeyboardInterrupt: once all is gone.
        OSError: no process can be started.

    Example:
        >>> from farandole import launch
        >>> result = launch.run(launch.JobSpec.of(["true"], num_proc=2))
        >>> result.exit_code
        0
    """
    received = _Received(on_event)
    with open(os.devnull, "w", encoding="utf-8") as nowhere, _Pipes() as pipes:
        own_stdout, own_stderr = sys.stdout or nowhere, sys.stderr or nowhere  # None where the program closed its own
        own_stdout.flush()
        own_stderr.flush()
        memory = pipes.memory(spec.to_json())
        call = pipes.copy(function.call) if function.call >= 0 else -1
        handed = [memory, pipes.make(received), call]
        args = [str(os.getpid()), *map(str, handed), function.cluster, function.server]
        with subprocess.Popen(
            [*python("farandole.launch.job_runner"), *args],
            stdin=subprocess.DEVNULL,
            stdout=pipes.to(stdout or own_stdout, _STDOUT),
            stderr=pipes.to(stderr or own_stderr, _STDERR),
            cwd=folder,
            env=None if environment is None else dict(environment),
            pass_fds=[each for each in handed if each >= 0],
            start_new_session=True,
        ) as process:
            pipes.of_child.close()
            if stop is not None:
                pipes.selector.register(stop, selectors.EVENT_READ, _Interrupts(process))
            _see_through(process, pipes.selector)
    sentence = f"the launcher ended with exit code {process.returncode} and printed no reason."
    ended = received.ended or JobEnded(process.returncode, (sentence,))
    if ended.is_refused:
        raise SpecError(ended.text, ended.field)
    return JobResult(ended.exit_code, ended, received.outcomes)  # the child leaves no code to who ignores SIGCHLD


def python(module: str, executable: str | None = None) -> list[str]:
    """The command that calls `main` of a module of farandole, whichever modules lie in the working directory."""
    root = str(Path(__file__).parents[2])
    path = f"sys.path[:] = [*filter(None, sys.path), {root!r}]"
    return [executable or sys.executable, "-c", f"import sys; {path}; from {module} import main; main()"]


@dataclass
class _Lines:
    """One pipe with output of ranks, and the stream that shows it."""

    shown: Shown
    rest: str = ""

    def __post_init__(self) -> None:
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        """Show the lines that are whole; without data all."""
        text = self.rest + self.decoder.decode(data, final=not data)
        end = max(text.rfind("\n"), text.rfind("\r")) + 1 if data else len(text)
        self.rest = text[end:]
        self.shown.write(text[:end])
        self.shown.flush()


@dataclass
class _Received:
    """The events of the launcher, and the outcomes of the ranks, as far as they have come."""

    on_event: Callable[[Event], object] | None
    ended: JobEnded | None = None
    outcomes: dict[int, bytearray] = field(default_factory=dict)
    reader: FrameReader = field(default_factory=lambda: FrameReader(greeted=True))

    def feed(self, data: bytes) -> None:
        """Take some."""
        for frame in self.reader.feed(data):
            if isinstance(frame, Output):
                self.outcomes.setdefault(frame.rank, bytearray()).extend(frame.data)
            elif isinstance(frame, dict) and (event := events.read(frame)) is not None:
                self.ended = event if isinstance(event, JobEnded) else self.ended
                if self.on_event is not None:
                    self.on_event(event)


@dataclass
class _Interrupts:
    """The requests of a `Stop`."""

    process: subprocess.Popen[bytes]

    def feed(self, _data: bytes) -> None:
        """End the job."""
        self.process.send_signal(signal.SIGINT)


class _Pipes:
    """The pipes from a child: the selector has our ends, each with its reader."""

    def __init__(self) -> None:
        self.selector, self.of_child = selectors.DefaultSelector(), ExitStack()
        self._ours = ExitStack()

    def __enter__(self) -> _Pipes:
        return self

    def __exit__(self, *_: object) -> None:
        self.of_child.close()
        self._ours.close()
        self.selector.close()

    def make(self, reader: _Lines | _Received) -> int:
        """The child's end of a new one."""
        readable, writable = os.pipe()
        self._ours.callback(os.close, readable)
        self.selector.register(readable, selectors.EVENT_READ, reader)
        with open(writable, "wb"):
            return self.copy(writable)

    def to(self, stream: Shown, descriptor: int) -> int:
        """Our own descriptor; in a notebook, and wherever the stream was replaced, a pipe that we read for it."""
        if not _is(stream, descriptor):
            return self.make(_Lines(stream))
        return self.copy(descriptor)

    def memory(self, text: str) -> int:
        """A text that the child reads. No command line, environment or file shows it."""
        with open(os.memfd_create("farandole spec"), "wb") as file:
            file.write(text.encode())
            file.flush()
            return self.copy(file.fileno())

    def copy(self, descriptor: int) -> int:
        """The same, with a number that is none of a child's stdin, stdout and stderr: we may have closed our own."""
        ours = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _STDERR + 1)
        self.of_child.callback(os.close, ours)
        return ours


def _is(stream: Shown, descriptor: int) -> bool:
    fileno = getattr(stream, "fileno", None)
    try:
        return fileno is not None and fileno() == descriptor
    except (AttributeError, OSError, ValueError):
        return False


def _see_through(process: subprocess.Popen[bytes], selector: selectors.BaseSelector) -> None:
    """Show what comes until the pipes close; whatever is raised meanwhile ends the job first."""
    interruption: BaseException | None = None
    while True:
        try:
            _show(selector)
            process.wait()
            break
        except KeyboardInterrupt as error:
            interruption = error
            process.send_signal(signal.SIGINT)
        except BaseException as error:  # stdout is closed, or a function of the caller's raised
            interruption = interruption or error
            process.terminate()
            process.wait()
            break
    if interruption is not None:
        raise interruption


def _show(selector: selectors.BaseSelector) -> None:
    while any(not isinstance(key.data, _Interrupts) for key in selector.get_map().values()):
        for key, _ in selector.select():
            data = os.read(key.fd, _CHUNK)
            if not data:
                selector.unregister(key.fileobj)
            key.data.feed(data)
