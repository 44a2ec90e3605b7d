"""Decides when the ranks get SIGTERM and SIGKILL. Pure: times and events in, actions out.

    a rank fails          1 s for the others to report what they see, SIGTERM, SIGKILL before the grace is over
    the user interrupts   that signal at once, SIGKILL after the grace or at a second Ctrl-C
    nobody reads stdout   SIGTERM at once, SIGKILL after the grace
    the ranks have ended  what they left running: SIGTERM, SIGKILL after 1 s (after the grace if the user interrupted)
    the launcher is gone  SIGKILL at once

The first reason to end decides the exit code; later ones can only make it quicker.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

PAUSE_SECONDS = 1.0
LEFTOVER_SECONDS = 1.0
REPEAT_SECONDS = 0.2  # the same Ctrl-C may arrive twice: from the terminal and from a wrapper
GIVE_UP_SECONDS = 3.0  # after SIGKILL: such a process sits in the kernel
CLOSED_STDOUT = 128 + signal.SIGPIPE


@dataclass
class Ending:
    """The end of one job, as decided so far."""

    grace_s: float
    began_at: float | None = None
    term_at: float | None = None
    kill_at: float | None = None
    exit_code: int | None = None  # None: that of the ranks
    _signal: int | None = None  # the user's signal that began the end
    _first_signal: int | None = None

    def rank_failed(self, now: float) -> None:
        """Record that a rank ended by itself with an error."""
        pause = min(PAUSE_SECONDS, self.grace_s / 2)
        self._begin(now, now + 0.9 * self.grace_s, term_at=now + pause)

    def interrupted(self, signum: int, now: float) -> bool:
        """Record that the user wants the job to end. Returns whether the ranks should get this signal as well."""
        if self.began_at is None:
            self._begin(now, now + self.grace_s, exit_code=128 + signum)
            self._signal = self._first_signal = signum
            return True
        if self._signal is None or (signum == signal.SIGINT == self._signal and now - self.began_at >= REPEAT_SECONDS):
            self._begin(now, now)
            return False
        if signum != self._signal:
            self._signal = signum
            return True
        return False

    @property
    def first_signal(self) -> int | None:
        """Return the signal with which the user ended a job that had not failed."""
        return self._first_signal

    def stdout_closed(self, now: float) -> None:
        """Record that the reader of the launcher's stdout has closed it."""
        self._begin(now, now + self.grace_s, term_at=now, exit_code=CLOSED_STDOUT)

    def ranks_gone(self, now: float) -> None:
        """Record that no rank is running, but processes that the ranks started are."""
        if self._signal is None:
            self._begin(now, now + min(LEFTOVER_SECONDS, self.grace_s))

    def launcher_gone(self, now: float) -> None:
        """Record that the launcher is gone: the ranks are killed at once."""
        self._begin(now, now, exit_code=128 + signal.SIGKILL)

    def term_due(self, now: float) -> bool:
        """Return True once, when it is time for SIGTERM."""
        if self.term_at is None or now < self.term_at:
            return False
        self.term_at = None
        return True

    def kill_due(self, now: float) -> bool:
        """Return True from the time for SIGKILL on."""
        return self.kill_at is not None and now >= self.kill_at

    def given_up(self, now: float) -> bool:
        """Return whether processes have survived SIGKILL for too long."""
        return self.kill_at is not None and now >= self.kill_at + GIVE_UP_SECONDS

    def wait_at_most(self, now: float) -> float | None:
        """Return the seconds until the next action is due."""
        times = [time for time in (self.term_at, self.kill_at) if time is not None]
        return max(0.0, min(times) - now) if times else None

    def _begin(self, now: float, kill_at: float, term_at: float | None = None, exit_code: int | None = None) -> None:
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)
        if self.began_at is None:
            self.began_at, self.term_at, self.exit_code = now, term_at, exit_code
