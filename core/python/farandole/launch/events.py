"""The events of a job, typed. Between processes they are messages (frames.py); sentences are for people only.

    {"kind": "RankEnded", "version": 1, "rank": 1, "host": "h1", "pid": 4711, "exit_code": 3, ...}

Readers skip unknown events and fields. Removing a field, or changing its meaning, makes a new version.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from farandole._start import frames

__all__ = ["Event", "JobEnded", "MembershipChanged", "RankEnded", "RankStarted", "RanksLate", "read"]

VERSION = 1


@dataclass(frozen=True)
class Event:
    """Base of all events."""

    def to_frame(self) -> bytes:
        """The message for another process."""
        return frames.message(type(self).__name__, version=VERSION, **dataclasses.asdict(self))


@dataclass(frozen=True)
class RankStarted(Event):
    """A rank's process has started. An elastic job numbers ranks in the order of their start."""

    rank: int
    host: str
    pid: int


@dataclass(frozen=True)
class RankEnded(Event):
    """The process of a rank has ended. `exit_code`: minus the signal that killed it, or 255 if its host is lost."""

    rank: int
    host: str
    pid: int
    exit_code: int
    ran_s: float
    was_told: bool  # the launcher had told the rank to end
    is_survived: bool  # the elastic job goes on without it


@dataclass(frozen=True)
class MembershipChanged(Event):
    """An elastic job goes on with these ranks, in the order of their start."""

    generation: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class RanksLate(Event):
    """Ranks keep the others waiting."""

    sentence: str


@dataclass(frozen=True)
class JobEnded(Event):
    """The last event of a job.

    `sentences` are those of the command line; where a rank is to blame, they begin with it.
    """

    exit_code: int
    sentences: tuple[str, ...] = ()
    is_refused: bool = False  # the launcher could not start it
    culprit: int | None = None  # the rank that failed first
    waiter: int | None = None  # the rank that failed because it waited for the culprit in vain
    host: str = ""  # of the culprit
    pid: int = 0
    reason: str = ""  # "failed first: exit code 3 after 1.2 s"
    last_lines: tuple[str, ...] = ()  # the last output of the culprit
    are_shown: bool = False  # these lines stand right above in what the user sees
    advice: str = ""  # what to do next
    field: str = ""  # the field of the spec because of which the job is refused

    @property
    def text(self) -> str:
        """Return the sentences and, unless they are already shown, the culprit's last lines."""
        lines = [f"[{self.culprit}] {each}" for each in self.last_lines if not self.are_shown]
        text = "\n".join([*self.sentences[:1], *lines, *self.sentences[1:]])
        return text.encode(errors="surrogateescape").decode(errors="replace")

    def on_screen(self, label: str) -> str:
        """Return the same text with the prefixes of the launcher's and the culprit's lines."""
        lines = [f"{label} {each}" for each in self.last_lines if not self.are_shown]
        own = [f"farandole: {each}" for each in self.sentences]
        return "\n".join([*own[:1], *lines, *own[1:]])

    @property
    def traceback(self) -> tuple[str, ...]:
        """Return the last Python traceback among the culprit's last lines."""
        begins = [at for at, line in enumerate(self.last_lines) if line.startswith("Traceback (most recent call last)")]
        return self.last_lines[begins[-1] :] if begins else ()


_KINDS = {kind.__name__: kind for kind in (RankStarted, RankEnded, MembershipChanged, RanksLate, JobEnded)}


def read(message: frames.Message) -> Event | None:
    """Return the event of a message; None if this version does not know it. Raises ValueError for an invalid event."""
    if not isinstance(message.get("version"), int):
        raise ValueError(f"{message!r:.60} is no event")
    kind = _KINDS.get(message["kind"])
    if kind is None or message["version"] != VERSION:
        return None
    names = {each.name for each in dataclasses.fields(kind)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in message.items() if name in names
    }
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{message!r:.60} lacks a field: {error}") from error
