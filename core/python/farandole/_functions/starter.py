"""`farandole run` as a child process, whose output appears where the caller prints.

The child is in a session of its own: a terminal's Ctrl-C reaches the caller only, which passes it on once. It ends
with the caller, even where that is killed. One thread reads its pipes, since a notebook shows lines in the cell whose
thread writes them.

    stdout of ranks    straight to the caller's stdout; where sys.stdout is another object, by a pipe
    stderr of ranks    likewise
    stderr of the launcher    its words about the end, which the caller raises
    outcomes of ranks  by a pipe (outcome_channel.py)
"""

from __future__ import annotations

import codecs
import fcntl
import os
import re
import selectors
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import farandole
from farandole._start.outcome_channel import PieceReader

_CHUNK = 1 << 16
_STDOUT, _STDERR = 1, 2
_VERDICT = re.compile(r"farandole: rank (\d+) on ")  # the line with which the launcher's last words begin
_OWN = "farandole: "


class Shown(Protocol):
    """A stream that shows lines."""

    def write(self, text: str, /) -> object:
        """Take text."""

    def flush(self) -> object:
        """Show it."""


@dataclass
class Ended:
    """The end of a job."""

    code: int
    said: str = ""  # the launcher's last words, without "farandole: " before its lines
    failed_first: int | None = None  # the rank that it blames
    outcomes: dict[int, bytearray] = field(default_factory=dict)  # of ranks, in the order of their first bytes


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
class _Words:
    """The launcher's last words."""

    text: bytes = b""

    def feed(self, data: bytes) -> None:
        """Take some."""
        self.text += data


@dataclass
class _Outcomes:
    """The outcomes of the ranks, as far as they have come."""

    found: dict[int, bytearray] = field(default_factory=dict)
    reader: PieceReader = field(default_factory=PieceReader)

    def feed(self, data: bytes) -> None:
        """Take some."""
        for rank, piece in self.reader.feed(data):
            self.found.setdefault(rank, bytearray()).extend(piece)


def python(module: str, executable: str | None = None) -> list[str]:
    """The command that calls `main` of a module of farandole, whichever modules lie in the working directory."""
    root = str(Path(farandole.__file__).parents[1])
    path = f"sys.path[:] = [*filter(None, sys.path), {root!r}]"
    return [executable or sys.executable, "-c", f"import sys; {path}; from {module} import main; main()"]


def run(words: list[str], call: int, way: str = "", stdout: Shown | None = None, stderr: Shown | None = None) -> Ended:
    """Run the launcher with these options and this command to its end; `call` is memory for the ranks.

    Raises KeyboardInterrupt once all is gone.

    Args:
        words: options, and the command.
        call: a descriptor.
        way: the engine whose tasks are the hosts, and the socket of its hub, with a colon between.
        stdout: where the stdout of ranks appears, by default ours.
        stderr: likewise.
    """
    last_words, outcomes = _Words(), _Outcomes()
    with open(os.devnull, "w", encoding="utf-8") as nowhere, _Pipes() as pipes:
        own_stdout, own_stderr = sys.stdout or nowhere, sys.stderr or nowhere  # None where the caller closed its own
        own_stdout.flush()
        own_stderr.flush()
        of_ranks = pipes.to(stdout or own_stdout, _STDOUT), pipes.to(stderr or own_stderr, _STDERR)
        handed = pipes.copy(call), pipes.make(outcomes), of_ranks[1]
        with subprocess.Popen(
            [*python("farandole.launch.child"), *map(str, (os.getpid(), *handed)), way, "run", *words],
            stdin=subprocess.DEVNULL,
            stdout=of_ranks[0],
            stderr=pipes.make(last_words),
            pass_fds=handed,
            start_new_session=True,
        ) as process:
            pipes.of_child.close()
            _see_through(process, pipes.selector)
        before, said = _divided(last_words.text.decode(errors="replace"), process.returncode)
        own_stderr.write(before)
    blamed = _VERDICT.match(said)
    plain = re.sub(f"^{_OWN}", "", said.rstrip("\n"), flags=re.MULTILINE)
    return Ended(process.returncode, plain, int(blamed[1]) if blamed else None, outcomes.found)


def _divided(text: str, code: int) -> tuple[str, str]:
    """Text of others, such as warnings of Python's, and the launcher's own about a failure."""
    first = re.search(f"^{_OWN}", text, re.MULTILINE)
    at = len(text) if code == 0 else first.start() if first else 0
    return text[:at], text[at:]


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

    def make(self, reader: _Lines | _Words | _Outcomes) -> int:
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
        except BaseException as error:  # stdout is closed, or the caller's own signal handler raised
            interruption = interruption or error
            process.terminate()
            process.wait()
            break
    if interruption is not None:
        raise interruption


def _show(selector: selectors.BaseSelector) -> None:
    while selector.get_map():
        for key, _ in selector.select():
            data = os.read(key.fd, _CHUNK)
            if not data:
                selector.unregister(key.fileobj)
            key.data.feed(data)
