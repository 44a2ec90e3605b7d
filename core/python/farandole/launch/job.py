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
    """A handle to end a job from a thread other than the one that runs it."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()

    def fileno(self) -> int:
        """Readable when the job is to end."""
        return self._reader.fileno()

    def interrupt(self) -> None:
        """Act like Ctrl-C: the ranks get the grace period to end, and a second call kills them."""
        self._writer.send(b"\0")


@dataclass(frozen=True)
class Function:
    """The function that `farandole.run` and clusters pass to the launcher."""

    call: int = -1  # descriptor of the memory with the function and its arguments
    cluster: str = ""  # the cluster whose tasks run the agents
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
    """Return the command that calls `main` of a farandole module, whatever modules the working directory has."""
    root = str(Path(__file__).parents[2])
    path = f"sys.path[:] = [*filter(None, sys.path), {root!r}]"
    return [executable or sys.executable, "-c", f"import sys; {path}; from {module} import main; main()"]


@dataclass
class _Lines:
    """A pipe with output of ranks, and the stream that shows this output."""

    shown: Shown
    rest: str = ""

    def __post_init__(self) -> None:
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        """Show the complete lines; without data, show everything that is left."""
        text = self.rest + self.decoder.decode(data, final=not data)
        end = max(text.rfind("\n"), text.rfind("\r")) + 1 if data else len(text)
        self.rest = text[end:]
        self.shown.write(text[:end])
        self.shown.flush()


@dataclass
class _Received:
    """The launcher's events and the ranks' outcomes that have arrived so far."""

    on_event: Callable[[Event], object] | None
    ended: JobEnded | None = None
    outcomes: dict[int, bytearray] = field(default_factory=dict)
    reader: FrameReader = field(default_factory=lambda: FrameReader(greeted=True))

    def feed(self, data: bytes) -> None:
        """Parse more bytes from the pipe."""
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
        """Make a new pipe, and return the child's end."""
        readable, writable = os.pipe()
        self._ours.callback(os.close, readable)
        self.selector.register(readable, selectors.EVENT_READ, reader)
        with open(writable, "wb"):
            return self.copy(writable)

    def to(self, stream: Shown, descriptor: int) -> int:
        """Return our own descriptor; or, if the stream was replaced (as in a notebook), a pipe that we read for it."""
        if not _is(stream, descriptor):
            return self.make(_Lines(stream))
        return self.copy(descriptor)

    def memory(self, text: str) -> int:
        """Return a descriptor of a text for the child. No command line, environment or file shows the text."""
        with open(os.memfd_create("farandole spec"), "wb") as file:
            file.write(text.encode())
            file.flush()
            return self.copy(file.fileno())

    def copy(self, descriptor: int) -> int:
        """Duplicate a descriptor to a number above stdin, stdout and stderr, which this process may have closed."""
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
    """Show the output until the pipes close. An exception meanwhile ends the job before it is raised."""
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
