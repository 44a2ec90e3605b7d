"""Lines that ranks write for the driver: they are shown there although the rest of the output is not.

A rank prints such a line with a mark, which the driver takes away. In a process that no driver listens to, such as a
rank of `farandole run`, the line is printed as it is.
"""

from __future__ import annotations

import os
import sys
import time

from farandole._start import task_environment
from farandole.launch.job import Shown

_MARK = "\x1efarandole\x1e"
_AGAIN_SECONDS = 5.0  # between two sentences about the same wait


def log_to_driver(message: object) -> None:
    """Show a message on the driver, whatever its verbosity is, after the number of this rank.

    Args:
        message: text of one line or more.
    """
    mark = _MARK if task_environment.driver_listens() else ""
    text = "".join(f"{mark}{line}\n" for line in str(message).splitlines() or [""])
    sys.stdout.flush()
    data = memoryview(text.encode(errors="replace"))
    try:
        descriptor = sys.stdout.fileno() if not mark else 1
    except (AttributeError, OSError, ValueError):  # a notebook's cell
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    while data:
        data = data[os.write(descriptor, data) :]


class DriverLog:
    """A stream for the lines of ranks.

    Args:
        shown: the stream where they appear.
        shows_all: also those that ranks do not write for the driver.
    """

    def __init__(self, shown: Shown, shows_all: bool = True) -> None:
        self._shown, self._shows_all, self._rest = shown, shows_all, ""

    def write(self, text: str) -> int:
        """Take text; it ends in the middle of a line only where the output does."""
        *lines, self._rest = (self._rest + text).split("\n")
        self._show("".join(f"{line}\n" for line in lines if self._shows_all or _MARK in line))
        return len(text)

    def flush(self) -> None:
        """Show what was taken."""
        if self._shows_all or _MARK in self._rest:
            self._show(self._rest)
        self._rest = ""
        self._shown.flush()

    def _show(self, text: str) -> None:
        if text:
            self._shown.write(text.replace(_MARK, ""))


class WaitMessages:
    """Writes a sentence where the user sees it: after `quiet_s`, then when it is another one, at most now and then."""

    def __init__(self, quiet_s: float = 1.0) -> None:
        self._reported, self._due = "", time.monotonic() + quiet_s

    def __call__(self, sentence: str) -> None:
        now = time.monotonic()
        if now >= self._due and sentence not in ("", self._reported):
            self._reported, self._due = sentence, now + _AGAIN_SECONDS
            print(f"farandole: {sentence}", file=sys.stderr, flush=True)
