"""The job's launcher, in a thread of the driver; the output of the ranks for the thread that asks for it."""

from __future__ import annotations

import re
import secrets
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from farandole.engine import is_name_of_rank
from farandole.launch import JobResult, JobSpec, SpecError, Stop, run

from farandole_ray import _log

_MARK = re.compile(r"(farandole-mark-[0-9a-f]{9})(?:" + _log.BETWEEN.decode() + r"([A-Za-z0-9+/=]+))?\r?\n")


def new_mark() -> bytes:
    """A line for the ranks to write after a call."""
    return f"farandole-mark-{secrets.token_hex(5)[:9]}".encode()


class _Lines:
    """Takes the lines of one stream."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take

    def write(self, text: str) -> None:
        for line in text.splitlines(keepends=True):
            self._take(line)

    def flush(self) -> None:
        pass


class Launcher:
    """Started at once. `variables`: the environment of the launcher."""

    def __init__(self, spec: JobSpec, variables: Mapping[str, str]) -> None:
        self.ended = threading.Event()
        self._spec, self._variables, self._stop = spec, dict(variables), Stop()
        self._result: JobResult | None = None
        self._refusal = ""
        self._lock = threading.Lock()
        self._shown: list[tuple[bool, str]] = []  # what `show` has to show: whether it is of stderr, lines
        self._marks: Counter[bytes] = Counter()
        self._logged: list[tuple[bytes, bytes]] = []  # what `show` has to hand to callbacks: a mark, values
        self._callbacks: tuple[bytes, Sequence[Callable[[Any], object]]] = b"", ()  # of the call with this mark
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = run(
                self._spec,
                environment=self._variables,
                folder="/",  # which every node has
                stdout=_Lines(lambda line: self._read(line, False)),
                stderr=_Lines(lambda line: self._read(line, True)),
                stop=self._stop,
            )
        except SpecError as error:
            self._refusal = str(error)
        except OSError as error:
            self._refusal = f"the launcher cannot be started: {error.strerror}; see ulimit -n and -u"
        self.ended.set()

    def _read(self, line: str, is_stderr: bool) -> None:
        with self._lock:
            if found := _MARK.search(line):
                self._take(found[1].encode(), found[2], is_stderr)
                before = line[: found.start()]
                if not is_name_of_rank(before):
                    self._shown.append((is_stderr, f"{before}\n"))
            else:
                self._shown.append((is_stderr, line))

    def _take(self, mark: bytes, values: str | None, is_stderr: bool) -> None:
        """The end of a rank's output; or values, which stderr repeats among the last lines of a lost rank."""
        if values is None:
            self._marks[mark] += 1
        elif not is_stderr:
            self._logged.append((mark, values.encode()))

    def listen(self, mark: bytes, callbacks: Sequence[Callable[[Any], object]]) -> None:
        """Hand what the ranks of this call log to callbacks, in the thread that calls `show`."""
        self._callbacks = mark, callbacks

    def has_all(self, mark: bytes, ranks: int) -> bool:
        """Returns whether the output of so many ranks is here up to their mark, on both streams."""
        with self._lock:
            return self._marks[mark] >= 2 * ranks

    def show(self) -> None:
        """Pass on what ranks have written, in the thread that a notebook's cell belongs to, and what they have logged.

        Raises what a callback raises, and calls none any more.
        """
        with self._lock:
            lines, self._shown = self._shown, []
            logged, self._logged = self._logged, []
        for is_stderr in (False, True):
            text = "".join(line for of_stderr, line in lines if of_stderr == is_stderr)
            stream = sys.stderr if is_stderr else sys.stdout
            if text:
                stream.write(text)
                stream.flush()
        try:
            for mark, values in logged:
                for each in self._callbacks[1] if mark == self._callbacks[0] else ():
                    each(_log.read(values))
        except BaseException:
            self._callbacks = b"", ()
            raise

    @property
    def code(self) -> int | None:
        """The exit code of the job; None before its end."""
        return (self._result.exit_code if self._result else 1) if self.ended.is_set() else None

    @property
    def said(self) -> str:
        """Why the job has failed."""
        if self._result is None:
            return self._refusal
        ended = self._result.ended
        if ended.culprit is None:
            return "\n".join(ended.sentences)
        return "\n".join(
            [f"rank {ended.culprit} on {ended.host} (pid {ended.pid}) {ended.reason}.", *ended.sentences[1:]]
        )

    @property
    def blamed(self) -> int | None:
        """The rank that failed first; None before the end, or where no rank did."""
        return None if self._result is None else self._result.ended.culprit

    def end(self, seconds: float = 10.0) -> None:
        """End what is left."""
        for _ in range(2):  # the second Ctrl-C kills
            if not self.ended.is_set():
                self._stop.interrupt()
                self.ended.wait(seconds)
        self._thread.join(seconds)
