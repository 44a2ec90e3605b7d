"""An agent that outlives its launcher belongs to a launcher, for a while to none, or to none any more. Pure.

    held     its launcher speaks each second
    alone    the launcher is gone; another one may claim the agent, and adopt it
    over     nobody has come for so long: the job ends

A claim holds the agent for one launcher while that one claims the other hosts. Times are seconds of any one clock.
"""

from __future__ import annotations

from dataclasses import dataclass

REPLACEABLE_SECONDS = 5.0  # a launcher that has said nothing for so long may be replaced
CLAIM_SECONDS = 30.0  # a claimed agent waits so long for the claimer's next word


@dataclass
class Tenure:
    """One agent's. Launchers that ask are numbers."""

    outlive_s: float
    heard_at: float  # its launcher's last word
    alone_since: float | None = None
    _claimer: int | None = None
    _claimed_at: float = 0.0

    @property
    def is_alone(self) -> bool:
        """Returns whether it has no launcher."""
        return self.alone_since is not None

    def hear(self, now: float) -> None:
        """The launcher has said something."""
        self.heard_at = now

    def lose(self, now: float) -> None:
        """The launcher is gone."""
        self.alone_since = now if self.alone_since is None else self.alone_since

    def claim(self, who: int, now: float) -> str:
        """A launcher wants to take the agent over. Returns why it may not, or ""."""
        if self.is_over(now):
            return "the job ends there, since nobody came in time"
        if self._claimer not in (None, who):
            return "another launcher is taking the job over"
        silent_s = now - self.heard_at
        if not self.is_alone and silent_s < REPLACEABLE_SECONDS:
            return f"the job has a launcher, which said something {silent_s:.1f} s ago; end that one first"
        self._claimer, self._claimed_at = who, now
        return ""

    def release(self, who: int) -> None:
        """That launcher does not want it any more, or is gone."""
        if self._claimer == who:
            self._claimer = None

    def adopt(self, who: int, now: float) -> float | None:
        """The launcher that has claimed the agent takes it over. Returns for how long it had none; None: no claim."""
        if self._claimer != who:
            return None
        silent_s = now - self.heard_at
        self._claimer, self.alone_since, self.heard_at = None, None, now
        return silent_s

    def is_over(self, now: float) -> bool:
        """Returns whether nobody has come for so long that the job ends."""
        return self.alone_since is not None and now >= self._over_at(self.alone_since)

    def next_due(self, now: float) -> float | None:
        """In how many seconds `is_over` may change."""
        return None if self.alone_since is None else max(0.0, self._over_at(self.alone_since) - now)

    def _over_at(self, since: float) -> float:
        until = since + self.outlive_s
        return until if self._claimer is None else max(until, self._claimed_at + CLAIM_SECONDS)
