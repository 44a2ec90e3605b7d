"""Asks a source again and again without blocking the loop of its caller. Each question is a process.

A process that takes too long or prints too much is killed with its process group. The next question waits until it is
reaped, so a process that sits in the kernel does not multiply.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from farandole.launch.discovery.source import Source
from farandole.launch.hosts import HostList
from farandole.launch.messages import one_line
from farandole.launch.spec import SpecError

UNUSABLE = "unusable"  # the kind of a failure that does not pass: the command cannot be run
WELL_SECONDS = 60.0  # after which a failure is news again
ANSWER_SECONDS = 10.0
MOST_BYTES = 1 << 20  # of an answer
_MOST_STDERR_BYTES = 1 << 12
_LONGEST_WORDS = 200  # of a process about its failure
_CHUNK = 1 << 16
_REMEDIES = {  # of a shell's exit codes
    126: "; make it executable (chmod +x), or name its interpreter",
    127: "; give the path of a command that is on this host",
}


@dataclass(frozen=True)
class QueryFailure:
    """A query that got no answer. Failures of one `kind` are reported once."""

    kind: str
    sentence: str  # without the point


@dataclass
class ReportedFailures:
    """The kinds of failures of a source that were reported: each once, until all has been well for a while."""

    _reported: set[str] = field(default_factory=set)
    _well_since: float | None = None

    def is_news(self, failure: QueryFailure) -> bool:
        """Return whether to report it. It then counts as reported."""
        self._well_since = None
        is_new = failure.kind not in self._reported
        self._reported.add(failure.kind)
        return is_new

    def all_well(self, now: float) -> None:
        """There was an answer."""
        self._well_since = now if self._well_since is None else self._well_since
        if now - self._well_since >= WELL_SECONDS:
            self._reported.clear()


@dataclass(eq=False)
class _Question:
    """A process that answers, and what it has printed."""

    process: subprocess.Popen[bytes]
    until: float
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    given_up: bool = False


class HostQuery:
    """Calls `on_answer` with the hosts, or with the failure, of each query. Its caller reaps, and calls `tick`."""

    def __init__(
        self,
        source: Source,
        environment: Mapping[str, str],
        selector: selectors.BaseSelector,
        on_answer: Callable[[HostList | QueryFailure], None],
    ) -> None:
        self.source = source
        self._environment, self._selector, self._on_answer = environment, selector, on_answer
        self._due_at = 0.0
        self._question: _Question | None = None
        self._now = 0.0

    @property
    def pid(self) -> int | None:
        """The child that is under way."""
        return None if self._question is None else self._question.process.pid

    def tick(self, now: float) -> None:
        """Ask where it is time; give up a process that takes too long."""
        self._now = now
        if self._question is not None and now >= self._question.until and not self._question.given_up:
            self._give_up("late", f"has not answered within {ANSWER_SECONDS:.0f} s and was killed")
        if self._question is None and now >= self._due_at:
            self._ask()

    def next_due(self, now: float) -> float | None:
        """Seconds until `tick` must be called."""
        if self._question is not None:
            return None if self._question.given_up else max(0.0, self._question.until - now)
        return max(0.0, self._due_at - now)

    def reaped(self, pid: int, code: int) -> None:
        """A child has ended, perhaps ours. `code`: its exit code or minus the signal."""
        question = self._question
        if question is None or question.process.pid != pid:
            return
        question.process.returncode = code
        if not question.given_up:
            self._read_rest(question)
        self._close()
        if question.given_up:
            return
        if code != 0:
            how = f"exit code {code}" if code > 0 else f"signal {-code}"
            last_words = _last_words(question.err)
            remedy = _REMEDIES.get(code, "")
            what = f"{self.source.name} ended with {how}{': ' if last_words else ''}{last_words}{remedy}"
            self._end(QueryFailure(UNUSABLE if remedy else "exit", what))
            return
        self._take(question.out.decode("utf-8-sig", "replace"))

    def close(self) -> None:
        """Ask no more, and kill what is under way."""
        self._due_at = float("inf")
        if self._question is not None:
            self._question.given_up = True
            self._kill(self._question)

    def _ask(self) -> None:
        if not self.source.args:
            self._take("")
            return
        try:
            self._start(self.source.args)
        except OSError as error:
            kind = UNUSABLE if isinstance(error, FileNotFoundError | PermissionError) else "start"
            what = f"{self.source.args[0]} cannot be started: {error.strerror}"
            self._end(QueryFailure(kind, f"{self.source.name}: {what}"))

    def _take(self, text: str) -> None:
        try:
            answer: HostList | QueryFailure = self.source.hosts_in(text)
        except SpecError as error:
            answer = QueryFailure("nonsense", str(error).rstrip("."))
        self._end(answer)

    def _start(self, args: Sequence[str]) -> None:
        """The process ends with our descendants; no Python runs between its fork and exec, so we may have threads."""
        process = subprocess.Popen(
            args,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout and process.stderr
        self._question = question = _Question(process, self._now + ANSWER_SECONDS)
        for pipe in (process.stdout, process.stderr):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, lambda pipe=pipe: self._read(question, pipe.fileno()))

    def _read(self, question: _Question, descriptor: int) -> bool:
        """Take a piece. Returns whether there was one."""
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        assert question.process.stdout
        if not data:
            self._selector.unregister(descriptor)
        elif descriptor == question.process.stdout.fileno():
            question.out += data
            if len(question.out) > MOST_BYTES:
                self._give_up("flood", f"prints more than {MOST_BYTES >> 20} MiB and was killed")
                return False
        else:
            question.err += data
            del question.err[:-_MOST_STDERR_BYTES]
        return bool(data)

    def _read_rest(self, question: _Question) -> None:
        """Read what its pipes still hold; a process that it left behind may write to them without end."""
        for pipe in (question.process.stderr, question.process.stdout):
            assert pipe
            for _ in range(2 * MOST_BYTES // _CHUNK):
                is_open = pipe.fileno() in self._selector.get_map()
                if question.given_up or not is_open or not self._read(question, pipe.fileno()):
                    break

    def _give_up(self, kind: str, what: str) -> None:
        question = self._question
        assert question is not None
        question.given_up = True
        self._unregister(question)
        self._kill(question)
        self._end(QueryFailure(kind, f"{self.source.name} {what}"))

    def _kill(self, question: _Question) -> None:
        if question.process.returncode is None:  # until it is reaped, the number is its own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(question.process.pid, signal.SIGKILL)

    def _end(self, answer: HostList | QueryFailure) -> None:
        self._due_at = max(self._due_at, self._now + self.source.every_s)
        self._on_answer(answer)

    def _unregister(self, question: _Question) -> None:
        for pipe in (question.process.stdout, question.process.stderr):
            if pipe and not pipe.closed and pipe.fileno() in self._selector.get_map():
                self._selector.unregister(pipe)

    def _close(self) -> None:
        question, self._question = self._question, None
        assert question is not None
        self._unregister(question)
        for pipe in (question.process.stdout, question.process.stderr):
            if pipe:
                pipe.close()


def _last_words(err: bytearray) -> str:
    """The last line of stderr that says something."""
    lines = [one_line(each) for each in err.decode(errors="replace").splitlines()]
    return next((each[:_LONGEST_WORDS] for each in reversed(lines) if each), "")
