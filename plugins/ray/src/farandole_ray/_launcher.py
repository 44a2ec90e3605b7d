"""`farandole run` as a child process, which ends with this process; its output for the thread that asks for it."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from farandole_ray import _log
from farandole_ray._processes import end_with

_OWN = "farandole: "
_BEGINNING = re.compile(rb"\[[^\]\n]*\] ?")  # of a rank's line
_MARK = re.compile(rb"(farandole-mark-[0-9a-f]{9})(?:" + _log.BETWEEN + rb"([A-Za-z0-9+/=]+))?\r?\n")
_LAST_LINES = re.compile(r"; its last lines( are above\.|:)")
# The launcher's verdict at the end, not its lines about ranks that are late or without which an elastic job goes on.
_BLAMED = re.compile(r"rank (\d+) on \S+ \(pid \d+\) (?!.*; \d+ ranks? go(es)? on\.$)")


def new_mark() -> bytes:
    """A line for the ranks to write after a call."""
    return f"farandole-mark-{secrets.token_hex(5)[:9]}".encode()


class Launcher:
    """Started at once. `options`: of `farandole run`, with the command behind "--"."""

    def __init__(self, options: Sequence[str], variables: Mapping[str, str]) -> None:
        self.code: int | None = None
        self.ended = threading.Event()
        self._options, self._variables = options, dict(variables)
        self._lock = threading.Lock()
        self._shown: list[tuple[bool, bytes]] = []  # what `show` has to show: whether it is of stderr, lines
        self._said: list[str] = []  # the launcher's own lines
        self._process: subprocess.Popen[bytes] | None = None
        self._marks: Counter[bytes] = Counter()
        self._logged: list[tuple[bytes, bytes]] = []  # what `show` has to hand to callbacks: a mark, values
        self._callbacks: tuple[bytes, Sequence[Callable[[Any], object]]] = b"", ()  # of the call with this mark
        self._began = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._began.wait()

    def _run(self) -> None:
        """In the thread whose end would end the child: it lives as long as the child."""
        try:
            self._process = subprocess.Popen(
                end_with(os.getpid(), [sys.executable, "-m", "farandole.launch", "run", *self._options]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",  # a folder that every node has
                env=self._variables,
                start_new_session=True,
            )
        except OSError as error:
            self._said.append(f"the launcher cannot be started: {error.strerror}")
            self.code = 1
            self.ended.set()
            return
        finally:
            self._began.set()
        with self._process as process:
            errors = threading.Thread(target=self._read, args=(process.stderr, True), daemon=True)
            errors.start()
            self._read(process.stdout, False)
            errors.join()
            self.code = process.wait()
        self.ended.set()

    def _read(self, pipe: object, is_stderr: bool) -> None:
        for line in pipe:  # type: ignore[attr-defined]
            with self._lock:
                if is_stderr and line.startswith(_OWN.encode()):
                    self._said.append(line.decode(errors="replace").removeprefix(_OWN).rstrip("\n"))
                elif found := _MARK.search(line):
                    self._take(found[1], found[2], is_stderr)
                    before = line[: found.start()]
                    if not _BEGINNING.fullmatch(before):
                        self._shown.append((is_stderr, before + b"\n"))
                else:
                    self._shown.append((is_stderr, line))

    def _take(self, mark: bytes, values: bytes | None, is_stderr: bool) -> None:
        """The end of a rank's output; or values, which stderr repeats among the last lines of a lost rank."""
        if values is None:
            self._marks[mark] += 1
        elif not is_stderr:
            self._logged.append((mark, values))

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
            text = b"".join(line for of_stderr, line in lines if of_stderr == is_stderr).decode(errors="replace")
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
    def said(self) -> str:
        """The launcher's own words."""
        return _LAST_LINES.sub(".", "\n".join(self._said))

    @property
    def blamed(self) -> int | None:
        """The rank that failed first, as the launcher says at the end; None before, or where it names no rank."""
        found = map(_BLAMED.match, self._said)
        return next((int(each[1]) for each in found if each), None)

    def end(self, seconds: float = 10.0) -> None:
        """End what is left."""
        if self._process is not None and not self.ended.is_set():
            for signum in (signal.SIGINT, signal.SIGKILL):
                self._process.send_signal(signum)
                if self.ended.wait(seconds):
                    break
        self._thread.join(seconds)
