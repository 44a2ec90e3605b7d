"""Which troubles of a source the user hears of: each kind once, until all has been well for a while. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

UNUSABLE = "unusable"  # the kind of a trouble that does not pass: the command cannot be run
WELL_SECONDS = 60.0  # after which a trouble is news again


@dataclass(frozen=True)
class Trouble:
    """A question to which there was no answer. `kind` is the same for troubles that are told once."""

    kind: str
    sentence: str  # without the point


@dataclass
class Complaints:
    """Remembers what was told."""

    _told: set[str] = field(default_factory=set)
    _well_since: float | None = None

    def is_news(self, trouble: Trouble) -> bool:
        """Returns whether the user should hear of it. It counts as told."""
        self._well_since = None
        is_new = trouble.kind not in self._told
        self._told.add(trouble.kind)
        return is_new

    def all_well(self, now: float) -> None:
        """There was an answer."""
        self._well_since = now if self._well_since is None else self._well_since
        if now - self._well_since >= WELL_SECONDS:
            self._told.clear()
