"""The launcher's loop around the agents of several hosts: keeps them alive, hears them, and ends them all.

cluster.py runs a job through them, examination.py an examination of the hosts.
"""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from dataclasses import dataclass, field

from farandole._start import frames
from farandole.launch import verdict
from farandole.launch.remote.link import Link
from farandole.launch.supervise import Supervisor

_HEARTBEAT_SECONDS = 1.0
_HANG_UP_SECONDS = 1.5  # from closing an agent's stdin to killing our end


@dataclass(kw_only=True)
class AgentsSupervisor(Supervisor):
    """Owns the links to all agents."""

    links: list[Link] = field(default_factory=list)
    told_to_end: bool = False
    _beat_at: float = field(default_factory=time.monotonic)
    _hung_up_at: float | None = None

    @abstractmethod
    def on_frame(self, link: Link, frame: frames.Message | frames.Output) -> None:
        """An agent has said something."""

    @abstractmethod
    def on_link_end(self, link: Link, now: float) -> None:
        """The way to an agent has ended, and `link` holds how."""

    @property
    def running(self) -> int:
        """See Supervisor. An examination of hosts has no ranks."""
        return 0

    @property
    def anything_left(self) -> bool:
        """Returns whether an agent, or our way to it, is there."""
        return any(link.code is None for link in self.links)

    def kill(self) -> None:
        """See Supervisor: the agents kill what is there; then our way to them goes."""
        for link in self.links:
            link.say("kill")
        self.hang_up()

    def hang_up(self) -> None:
        """End all agents."""
        self.told_to_end = True
        if self._hung_up_at is None:
            self._hung_up_at = time.monotonic()
            for link in self.links:
                link.hang_up()

    def reap(self, now: float) -> None:
        """See Supervisor: children of ours are ways to agents, and other agents have dialled in."""
        for link in list(self.links):
            if link.is_closed:
                self._end_link(link, 0 if link.done else verdict.LOST, now)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            found = next((each for each in self.links if each.process and each.process.pid == pid), None)
            code = os.waitstatus_to_exitcode(status)
            if found is None:
                self.other_child_ended(pid, code)
            else:
                self._end_link(found, code, now)

    def _end_link(self, link: Link, code: int, now: float) -> None:
        link.end(code)
        self.on_link_end(link, now)

    def other_child_ended(self, pid: int, code: int) -> None:
        """A child of ours has ended that is no way to an agent. `code`: its exit code, or minus the signal."""

    def next_due(self, now: float) -> float | None:
        """See Supervisor."""
        times = [self._beat_at + _HEARTBEAT_SECONDS - now]
        if self._hung_up_at is not None:
            times.append(self._hung_up_at + _HANG_UP_SECONDS - now)
        return max(0.0, min(times))

    def act(self, now: float) -> None:
        """See Supervisor."""
        if now - self._beat_at >= _HEARTBEAT_SECONDS:
            self._beat_at = now
            for link in self.links:
                link.say("beat", answer=self.lease is not None)
        if self._hung_up_at is not None and now - self._hung_up_at >= _HANG_UP_SECONDS:
            for link in self.links:
                link.kill()
        super().act(now)
