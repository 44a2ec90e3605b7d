"""Whole lines of many ranks on one screen. Pure: bytes in, bytes to write out.

A Source is one stream of one rank; it holds back the line it has not finished. Screens decide when an unfinished
line may be shown anyway:

    PlainScreen     a pipe or a file. Bytes are passed on unchanged, a prefix stands at the start of each line only.
                    An unfinished line is shown when it is a progress bar (it holds a carriage return) or when rank 0
                    asks something; a newline ends it before another rank's line.
    TerminalScreen  the last line belongs to one unfinished line: it is erased before other lines are written and drawn
                    again below them. Of a line with carriage returns only what would be visible is written.

Of several unfinished lines the one of the lowest rank is shown.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

LINE_LIMIT = 1 << 20  # longer lines are cut here, each piece a line of its own: memory stays bounded
QUIET_SECONDS = 0.2
LAUNCHER = -1  # "rank" of our own messages, which have no prefix
_ERASE = b"\r\x1b[K"
_COLORS = (36, 33, 32, 35, 34, 31)
_PROMPT = re.compile(rb"[:?>$#%\])][ \t]*\Z")
_ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True)
class Style:
    """The prefix of each line."""

    prefix: bool = True
    timestamp: bool = False
    color: bool = False
    hosts: Mapping[int, str] = field(default_factory=dict)  # of each rank, where there are several
    now: Callable[[], float] = time.time

    def before_line(self, rank: int) -> bytes:
        """`[rank] ` or `[rank host] `, the time of day, both, or nothing."""
        if rank == LAUNCHER:
            return b""
        name = name_of_rank(rank, self.hosts)
        label = f"{name} " if self.prefix else ""
        if self.color and label:
            label = f"\x1b[{_COLORS[rank % len(_COLORS)]}m{name}\x1b[0m "
        if self.timestamp:
            now = self.now()
            label += time.strftime("%H:%M:%S", time.localtime(now)) + f".{int(now * 1000) % 1000:03d} "
        return label.encode()


def name_of_rank(rank: int, hosts: Mapping[int, str]) -> str:
    """`[3 h1]`, or `[3]` where all ranks are on one host."""
    return f"[{rank} {hosts[rank]}]" if rank in hosts else f"[{rank}]"


def is_name_of_rank(text: str) -> bool:
    """Return whether a line has only what `Style.before_line` adds without a time of day."""
    text = text.removesuffix(" ")
    return not text or (text.startswith("[") and text.endswith("]") and text[1:-1].partition(" ")[0].isdecimal())


@dataclass(eq=False)
class Source:
    """One stream of one rank."""

    rank: int
    pending: bytearray = field(default_factory=bytearray)  # the line it has not finished
    progress: bool = False  # it holds a carriage return, so later bytes overwrite earlier ones
    shown_bytes: int = 0  # of pending, on a PlainScreen
    waiting_since: float | None = None  # pending holds bytes that no screen shows

    def take(self, data: bytes, now: float) -> bytes:
        """Whole lines that `data` completes; the rest waits in `pending`."""
        head, newline, rest = data.rpartition(b"\n")
        lines = b""
        if newline:
            lines = bytes(self.pending) + head + newline
            self.pending, self.waiting_since = bytearray(rest), None
            self.progress = b"\r" in rest
        else:
            self.pending += rest
            self.progress = self.progress or b"\r" in rest
        if rest and self.waiting_since is None:
            self.waiting_since = now
        return lines + self.rest() if len(self.pending) >= LINE_LIMIT else lines

    def rest(self) -> bytes:
        """The unfinished line, finished."""
        lines = bytes(self.pending) + b"\n" if self.pending else b""
        self.pending, self.waiting_since, self.progress = bytearray(), None, False
        return lines


class Screen(ABC):
    """One destination. `lines` and `unfinished` return what to write to it."""

    def __init__(self, style: Style) -> None:
        self._style = style
        self._open: Source | None = None  # whose unfinished line stands there

    @abstractmethod
    def lines(self, source: Source, lines: bytes) -> bytes:
        """Whole lines of `source`, straight from Source.take or Source.rest."""

    @abstractmethod
    def unfinished(self, source: Source, now: float) -> bytes:
        """Show what `source` has not finished, if it is time to."""

    def _may_open(self, source: Source) -> bool:
        return self._open is None or source.rank <= self._open.rank

    def _prefixed(self, source: Source, lines: bytes) -> bytes:
        prefix = self._style.before_line(source.rank)
        if not prefix or not lines:
            return lines
        return prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n"


class PlainScreen(Screen):
    """A pipe or a file. `prompts`: rank 0 has somebody to ask."""

    def __init__(self, style: Style, prompts: bool) -> None:
        super().__init__(style)
        self._prompts = prompts

    def lines(self, source: Source, lines: bytes) -> bytes:
        """Each with its prefix; the first goes on where the source's open line stands."""
        shown, source.shown_bytes = source.shown_bytes, 0
        rest = lines[shown:]
        if self._open is source:
            self._open = None
            first, newline, more = rest.partition(b"\n")
            return first + newline + self._prefixed(source, more)
        if shown and rest.startswith(b"\n"):  # its text stands there already, ended for another's line
            rest = rest[1:]
        return self._end_open_line() + self._prefixed(source, rest) if rest else b""

    def unfinished(self, source: Source, now: float) -> bytes:
        """The new bytes of a progress bar or a question."""
        if source.waiting_since is None or not (self._may_open(source) and self._is_worth_showing(source, now)):
            return b""
        text = bytes(source.pending[source.shown_bytes :])
        if self._open is not source:
            text = self._end_open_line() + self._style.before_line(source.rank) + text
        self._open, source.shown_bytes, source.waiting_since = source, len(source.pending), None
        return text

    def _is_worth_showing(self, source: Source, now: float) -> bool:
        if source.progress:
            return True
        quiet = source.waiting_since is not None and now - source.waiting_since >= QUIET_SECONDS
        return quiet and self._prompts and source.rank == 0 and _PROMPT.search(source.pending[-80:]) is not None

    def _end_open_line(self) -> bytes:
        ended, self._open = self._open, None
        return b"" if ended is None else b"\n"


class TerminalScreen(Screen):
    """A terminal. `columns` tells its width."""

    def __init__(self, style: Style, columns: Callable[[], int]) -> None:
        super().__init__(style)
        self._columns = columns

    def lines(self, source: Source, lines: bytes) -> bytes:
        """Each with its prefix, above the open line of another source."""
        if not lines:
            return b""
        before = b"" if self._open is None else _ERASE
        if self._open is source:
            self._open = None
        if b"\r" in lines:
            lines = b"\n".join(map(visible, lines.split(b"\n")))
        return before + self._prefixed(source, lines) + self._drawn()

    def unfinished(self, source: Source, now: float) -> bytes:
        """The whole line drawn anew, once it has stood for a while or is a progress bar."""
        if source.progress:  # what is overwritten need not be kept
            source.pending = bytearray(b"\r" + visible(bytes(source.pending)))
        if source.waiting_since is None or not self._may_open(source):
            return b""
        if not source.progress and now - source.waiting_since < QUIET_SECONDS:
            return b""
        self._open, source.waiting_since = source, None
        return _ERASE + self._drawn()

    def status(self, source: Source, text: str) -> bytes:
        """Text of our own in the last line, until there is another, or none."""
        source.pending = bytearray(text.encode(errors="surrogateescape"))
        if not text:
            was_open, self._open = self._open is source, None if self._open is source else self._open
            return _ERASE if was_open else b""
        self._open = source
        return _ERASE + self._drawn()

    def _drawn(self) -> bytes:
        if self._open is None:
            return b""
        prefix = self._style.before_line(self._open.rank)
        room = self._columns() - len(_ESCAPE.sub(b"", prefix)) - 1
        return prefix + _cut(visible(bytes(self._open.pending)), room)


def visible(line: bytes) -> bytes:
    """The part of a line with carriage returns that a terminal would show, if each stretch covers the one before."""
    return next((stretch for stretch in reversed(line.split(b"\r")) if stretch), b"")


def _cut(text: bytes, columns: int) -> bytes:
    """At most `columns` characters, so that the line does not wrap and can be erased."""
    characters = text.decode(errors="surrogateescape")
    if len(characters) <= columns or len(_ESCAPE.sub(b"", text).decode(errors="surrogateescape")) <= columns:
        return text
    return characters[: max(0, columns)].encode(errors="surrogateescape") + (b"\x1b[0m" if b"\x1b" in text else b"")
