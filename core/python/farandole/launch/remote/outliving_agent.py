"""An agent whose ranks go on for a while when its launcher is gone, until another launcher adopts them.

    launcher -> agent   outlive: for how long, the key and the socket at which another launcher is heard
                        shown: so many frames of output are shown, and need not be kept
                        end: the launcher ends the job, or has seen its end
    another  -> agent   claim, adopt
    agent -> another    adoptable, claimed or refused; state: all that it remembers; then as for any launcher
    agent -> the first  replaced, or left for another one, where it was silent for long and is still there

tenure.py decides, memory.py remembers, backlog.py keeps the output; callers.py has the socket.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from farandole._start.membership_channel import Message
from farandole.launch import guard, local
from farandole.launch.inspection.sight import Sight
from farandole.launch.relay import OutputOptions, Relay
from farandole.launch.remote import agent, frames, state_file
from farandole.launch.remote.backlog import Backlog
from farandole.launch.remote.callers import Caller, Callers
from farandole.launch.remote.forwarder import Forwarder
from farandole.launch.remote.memory import JobMemory
from farandole.launch.remote.outgoing import Nowhere, Outgoing
from farandole.launch.remote.tenure import Tenure

_LEFTOVER_SECONDS = 1.0  # for what ranks have left behind, from SIGTERM to SIGKILL


class OutlivingForwarder(Forwarder):
    """Keeps output until a launcher has shown it."""

    def __init__(
        self, options: OutputOptions, selector: selectors.BaseSelector, wake: Callable[[], None], descriptor: int
    ) -> None:
        super().__init__(options, selector, wake, descriptor)
        self.backlog = Backlog()
        self.keeps = False  # from the message `outlive` on

    def pass_on(self, rank: int, pipe: int, data: bytes) -> None:
        """See Forwarder."""
        if self.keeps:
            self.backlog.add(rank, pipe, data, sent=isinstance(self._out, Outgoing))
        super().pass_on(rank, pipe, data)

    def detach(self) -> None:
        """There is no launcher."""
        self._out.close()
        self._out = Nowhere()

    def attach(self, descriptor: int) -> None:
        """Another launcher reads here."""
        self._out = Outgoing(descriptor, self.selector)

    def resend(self) -> None:
        """Send the launcher what no launcher has shown."""
        for frame in self.backlog.resend():
            self.send(frame)

    def say(self, message: str) -> None:
        """See Forwarder. The way to the launcher may be gone."""
        with contextlib.suppress(OSError):
            super().say(message)


@dataclass(kw_only=True)
class OutlivingAgent(agent.Agent):
    """See above."""

    _memory: JobMemory = field(default_factory=JobMemory)
    _tenure: Tenure | None = None  # None: it ends with its launcher
    _callers: Callers | None = None
    _job: str = ""
    _file: str = ""  # where the launcher's file is on this host
    _has_told_done: bool = False
    _is_let_go: bool = False
    _kill_leftovers_at: float | None = None

    def make_relay(self) -> Relay:
        """See Supervisor."""
        return OutlivingForwarder(self.options, self.selector, self.wake, self.answers)

    @property
    def _output(self) -> OutlivingForwarder:
        assert isinstance(self.relay, OutlivingForwarder)
        return self.relay

    @property
    def anything_left(self) -> bool:
        """See Agent. Without ranks it stays until its launcher has heard all that it knows."""
        if self._tenure is None or self._is_let_go or self._dismissed or self.ending.exit_code is not None:
            return super().anything_left
        return True

    # The launcher's messages

    def _obey(self, message: frames.Message) -> None:
        if self._tenure is not None:
            self._tenure.hear(time.monotonic())
        if message["kind"] == "outlive":
            self._begin_to_outlive(message)
        elif message["kind"] == "shown":
            self._output.backlog.shown(int(message["frames"]))
        elif message["kind"] == "end":
            self._is_let_go = True
        else:
            super()._obey(message)

    def _begin_to_outlive(self, message: frames.Message) -> None:
        """At the start, and from each launcher that has adopted the job."""
        now = time.monotonic()
        self._job, self._file = message["job"], message["file"]
        if self._tenure is None:
            try:
                self._callers = Callers(
                    message["socket"], bytes.fromhex(message["key"]), self.selector, self._on_caller
                )
            except OSError as error:
                self._output.say(f"farandole: no launcher can adopt the ranks of this host: {error.strerror}.")
                return
            self._tenure = Tenure(float(message["seconds"]), now)
            self._output.keeps = True

    def _lose_launcher(self) -> None:
        if self._tenure is None or self._is_let_go or self.ending.exit_code is not None:
            super()._lose_launcher()
        elif not self._tenure.is_alone:
            self._tenure.lose(time.monotonic())
            self.say("replaced")  # to one that was silent for long, if it lives all the same
            self._detach()

    def _detach(self) -> None:
        with contextlib.suppress(KeyError, ValueError):  # it is at its end, and no longer listened to
            self.selector.unregister(self.commands)
        self._output.detach()
        os.close(self.commands)
        os.close(self.answers)
        self.commands = self.answers = -1

    # Other launchers

    def _on_caller(self, caller: Caller, message: frames.Message | None) -> None:
        assert self._tenure is not None
        now = time.monotonic()
        if message is None:
            self._tenure.release(caller.number)
        elif message["kind"] == "claim":
            ends = self.ending.exit_code is not None
            why = "the job ends there" if ends else self._tenure.claim(caller.number, now)
            caller.say("refused" if why else "claimed", **({"why": why} if why else {}))
        elif message["kind"] == "adopt":
            self._adopt(caller, now)

    def _adopt(self, caller: Caller, now: float) -> None:
        assert self._tenure is not None and self._callers is not None
        alone_s = self._tenure.adopt(caller.number, now)
        if alone_s is None:
            caller.say("refused", why="another launcher has taken the job over")
            return
        if self.commands >= 0:
            self.say("replaced")
            self._detach()
        descriptor, self._reader = self._callers.take(caller)
        self.commands, self.answers = descriptor, os.dup(descriptor)
        self.selector.register(self.commands, selectors.EVENT_READ, self._hear_launcher)
        self._output.attach(self.answers)
        self._heard_at = now
        self._has_told_done = False
        self.say("state", **self._memory.state(now), alone_s=alone_s, lost=self._output.backlog.take_lost())
        self._output.resend()
        if self.suspended:
            self.go_on()

    # The ranks

    def add(self, rank: local.Rank) -> None:
        """See LocalSupervisor."""
        super().add(rank)
        self._has_told_done = self._leftovers_told = False
        self._memory.started(rank.placement, rank.pid, rank.started_at)

    def say(self, kind: str, **content: Any) -> None:
        """See Agent. The next launcher must know of deaths, too."""
        if kind == "death":
            self._memory.died({"kind": kind, **content}, time.monotonic())
        super().say(kind, **content)

    def take_sight(self, sight: Sight, now: float) -> None:
        """See LocalSupervisor. It is of no use to a later launcher."""
        if self._tenure is None or not self._tenure.is_alone:
            super().take_sight(sight, now)

    def hear_member(self, rank: int, message: Message) -> None:
        """See Supervisor."""
        self._memory.heard(rank, message)
        super().hear_member(rank, message)
        if self._is_over():
            self._end_asking()

    def tell_member(self, rank: int, message: Message) -> None:
        """See Supervisor."""
        self._memory.told(rank, message)
        super().tell_member(rank, message)

    def _leave_nothing(self, now: float) -> None:
        """Processes that ranks have left end, and the agent stays: ranks of other hosts may go on."""
        if self._tenure is None or self.ending.exit_code is not None:
            super()._leave_nothing(now)
            return
        self._leftovers_told = True
        self._kill_leftovers_at = now + min(_LEFTOVER_SECONDS, self.grace_s)
        guard.signal_descendants(signal.SIGTERM, spare=self._told_groups.__contains__)

    def _is_over(self) -> bool:
        return self._tenure is not None and self._tenure.is_over(time.monotonic())

    def _end_asking(self) -> None:
        """Ranks that wait for a decision get the last one."""
        assert self._tenure is not None
        why = f"the launcher was gone for {self._tenure.outlive_s:g} s, and no other one has adopted the job"
        for rank in list(self._memory.asking()):
            self.tell_member(rank, {"kind": "end", "why": why})

    # The loop

    def next_due(self, now: float) -> float | None:
        """See Supervisor."""
        if self._tenure is None or not self._tenure.is_alone:
            due = super().next_due(now)
        else:
            due = None if self.ending.exit_code is not None else self._tenure.next_due(now)
        if self._kill_leftovers_at is None:
            return due
        left_s = max(0.0, self._kill_leftovers_at - now)
        return left_s if due is None else min(due, left_s)

    def act(self, now: float) -> None:
        """See Supervisor."""
        if self._callers is not None:
            self._callers.tick(now)
        if self._kill_leftovers_at is not None and now >= self._kill_leftovers_at:
            self._kill_leftovers_at = None
            if not self.alive:
                guard.signal_descendants(signal.SIGKILL)
        if self._tenure is not None and self.ending.exit_code is None:
            self._tell_done(now)
            if self._tenure.is_over(now):
                self._end_alone(now)
        if self._tenure is not None and self._tenure.is_alone:
            self._heard_at = now  # its silence is no news
        super().act(now)

    def _tell_done(self, now: float) -> None:
        assert self._tenure is not None
        if self._has_told_done or self._tenure.is_alone or super().anything_left:
            return
        self.relay.drain(now)
        if not self.relay.streams:
            self._has_told_done = True
            self.say("done", stuck=False)

    def _end_alone(self, now: float) -> None:
        """No launcher has come: the job ends as if its user had ended it."""
        self.ending.interrupted(signal.SIGTERM, now)
        self.tell_ranks(signal.SIGTERM)
        self._end_asking()

    def conclude(self) -> int:
        """See Supervisor."""
        if self._callers is not None:
            self._callers.close()
        if self._file and self._tenure is not None and self._tenure.is_alone:
            state_file.remove_of(self._file, self._job)
        return super().conclude()


def main() -> NoReturn:
    """Run the agent and exit."""
    sys.exit(guard.run_guarded(partial(agent.work, kind=OutlivingAgent)))


if __name__ == "__main__":
    main()
