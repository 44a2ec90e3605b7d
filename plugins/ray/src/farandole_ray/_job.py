"""A job in a thread of the driver; the output of its ranks for the thread that asks for it."""

from __future__ import annotations

import re
import secrets
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from farandole import FarandoleError
from farandole.engine import is_name_of_rank
from farandole.launch import Stop

from farandole_ray import _log

_MARK = re.compile(r"(farandole-mark-[0-9a-f]{9})(?:" + _log.BETWEEN + r"([A-Za-z0-9+/=]+))?\r?\n")
_END_S = 10.0  # for the ranks to end, each time that they are told to


def new_mark() -> str:
    """A line for the ranks to write after a call."""
    return f"farandole-mark-{secrets.token_hex(5)[:9]}"


class _Lines:
    """Takes the lines of one stream."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take

    def write(self, text: str) -> None:
        for line in text.splitlines(keepends=True):
            self._take(line)

    def flush(self) -> None:
        pass


class Job:
    """Started at once. `run`: returns the results of the ranks; takes `stdout`, `stderr` and `stop`."""

    def __init__(self, run: Callable[..., list[Any]]) -> None:
        self.ended = threading.Event()
        self._run, self._stop = run, Stop()
        self._results: list[Any] = []
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._shown: list[tuple[bool, str]] = []  # what `show` has to show: whether it is of stderr, lines
        self._marks: Counter[str] = Counter()
        self._logged: list[tuple[str, str]] = []  # what `show` has to hand to callbacks: a mark, values
        self._callbacks: tuple[str, Sequence[Callable[[Any], object]]] = "", ()  # of the call with this mark
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        stdout, stderr = _Lines(lambda line: self._read(line, False)), _Lines(lambda line: self._read(line, True))
        try:
            self._results = self._run(stdout=stdout, stderr=stderr, stop=self._stop)
        except BaseException as error:
            self._error = error
        self.ended.set()

    def _read(self, line: str, is_stderr: bool) -> None:
        with self._lock:
            if found := _MARK.search(line):
                self._take(found[1], found[2], is_stderr)
                before = line[: found.start()]
                if not is_name_of_rank(before):
                    self._shown.append((is_stderr, f"{before}\n"))
            else:
                self._shown.append((is_stderr, line))

    def _take(self, mark: str, values: str | None, is_stderr: bool) -> None:
        """The end of a rank's output; or values, which stderr repeats among the last lines of a lost rank."""
        if values is None:
            self._marks[mark] += 1
        elif not is_stderr:
            self._logged.append((mark, values))

    def listen(self, mark: str, callbacks: Sequence[Callable[[Any], object]]) -> None:
        """Hand what the ranks of this call log to callbacks, in the thread that calls `show`."""
        self._callbacks = mark, callbacks

    def has_all(self, mark: str, ranks: int) -> bool:
        """Return whether the output of so many ranks is here up to their mark, on both streams."""
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
            self._callbacks = "", ()
            raise

    @property
    def why(self) -> str:
        """Why it has ended."""
        if self._error is None:
            return "they stopped without an error."
        return str(self._error) if type(self._error) is FarandoleError else repr(self._error)

    def result(self) -> list[Any]:
        """The results of a job that has ended. Raises what the rank that failed first has raised, or FarandoleError."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._results

    def end(self) -> None:
        """End what is left, and show its last lines."""
        for _ in range(2):  # the second Ctrl-C kills
            if not self.ended.is_set():
                self._stop.interrupt()
                self.ended.wait(_END_S)
        self._thread.join(_END_S)
        self.show()
