"""Checks several hosts: connects to their agents, and carries messages until it is complete."""

from __future__ import annotations

import math
import secrets
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from farandole._start import frames
from farandole.launch import environment, guard
from farandole.launch.ending import CLOSED_STDOUT
from farandole.launch.environment import own_version
from farandole.launch.events import JobEnded
from farandole.launch.head import agent_link, ssh
from farandole.launch.head.address_search import Send
from farandole.launch.head.agent_link import NO_AGENT_REMEDY
from farandole.launch.head.host_checks import GREETING_SECONDS, HostChecks
from farandole.launch.hosts import is_local
from farandole.launch.options import HostOptions
from farandole.launch.relay import OutputOptions
from farandole.launch.supervise import ENDING, Supervisor
from farandole.observe.doctor import report
from farandole.observe.doctor.finding import Finding
from farandole.observe.doctor.hosts import HostFacts, judge

_CANNOT_START = 1


@dataclass(frozen=True)
class CheckOrder:
    """The hosts to check, and how they are reached."""

    hosts: Sequence[str]
    local_names: Collection[str]
    options: HostOptions
    base: Mapping[str, str]  # the launcher's environment
    limit_s: float


def check_hosts(order: CheckOrder, show: Callable[[Sequence[Finding]], str]) -> int:
    """Print the text that `show` makes of the findings, and leave nothing behind.

    Returns 1 where something is FAIL, else 0; the code of a signal that ended it.
    """
    return guard.run_guarded(lambda lifeline: _work(order, show, lifeline))


def _work(order: CheckOrder, show: Callable[[Sequence[Finding]], str], lifeline: int) -> int:
    supervisor = Supervisor(OutputOptions(), 0.0, lifeline)
    carrier = _Carrier(supervisor, _examination(order), order.options.python)
    try:
        _connect(order, carrier)
    except OSError as error:
        print(f"farandole: cannot start {error.filename or 'ssh'}: {error.strerror}.", file=sys.stderr)
        return _CANNOT_START
    if code := supervisor.run():
        return code
    found = judge(carrier.checks.hosts)
    try:
        print(show(found), flush=True)
    except BrokenPipeError:
        return CLOSED_STDOUT
    return report.exit_code(found)


def _examination(order: CheckOrder) -> HostChecks:
    travels = environment.for_other_hosts(order.base, {})
    return HostChecks(
        hosts=[HostFacts(name) for name in order.hosts],
        environments=[order.base if is_local(name, order.local_names) else travels for name in order.hosts],
        limit_s=order.limit_s,
        probe_key=secrets.token_hex(32),
        interfaces=order.options.interfaces,
    )


def _connect(order: CheckOrder, carrier: _Carrier) -> None:
    ssh_args = environment.settings(order.base).ssh
    for name in order.hosts:
        here = is_local(name, order.local_names)
        args = ssh.agent_command(name, here, order.options, ssh_args)
        process = agent_link.start(args, environment.without_outer_job(order.base))
        selector = carrier.supervisor.selector
        carrier.links.append(agent_link.Link(name, selector, carrier.on_frame, process, is_local=here))


@dataclass
class _Carrier:
    """Carries messages between the checks and the agents. There are no ranks."""

    supervisor: Supervisor
    checks: HostChecks
    python: str  # on other hosts
    running: int = 0
    _began_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.agents = agent_link.Agents(self._on_link_end)
        self.links, self.reap, self.kill = self.agents.links, self.agents.reap, self.agents.kill
        self.supervisor.ranks, self.supervisor.conclude = self, self._conclude

    @property
    def anything_left(self) -> bool:
        """See Ranks: an agent, or our connection to it."""
        return self.agents.are_left

    def tell(self, signum: int, groups: bool = False, spare_ending: bool = False) -> None:
        """See Ranks: the user ends this."""
        if signum in ENDING:
            self.agents.hang_up()

    def on_frame(self, link: agent_link.Link, frame: frames.Message | frames.Output) -> None:
        """An agent has said something."""
        if isinstance(frame, frames.Output):
            return
        link.greeted = True
        if frame["kind"] == "ending":
            link.ended_by = frame["why"], frame["code"]
        elif frame["kind"] != "done":
            number = self.links.index(link)
            self._send(self.checks.on_message(number, frame, time.monotonic(), time.time()))

    def _on_link_end(self, link: agent_link.Link, now: float) -> None:
        assert link.code is not None
        if self.agents.told_to_end:
            return
        text = link.stderr.decode(errors="replace")
        if link.error:
            problem, remedy = link.error, NO_AGENT_REMEDY
        elif not link.greeted:
            problem, remedy = ssh.cause(link.name, link.code, text, self.python, own_version())
        else:
            by = f": somebody ended its agent by {link.ended_by[0]}" if link.ended_by else ssh.last_line(text)
            problem, remedy = f"{link.name} was lost while it was examined{by}", ""
        self._send(self.checks.fail(self.links.index(link), problem, remedy))

    def _send(self, sends: Sequence[Send]) -> None:
        for number, kind, content in sends:
            self.links[number].say(kind, **content)

    def act(self, now: float) -> None:
        """See Ranks."""
        passed_s = now - self._began_at
        for number in self.checks.late(passed_s):
            name = self.links[number].name
            problem = f"{name} did not answer within {passed_s:.0f} s"
            self._send(self.checks.fail(number, problem, f"try it: ssh {name} true"))
            self.links[number].hang_up()
            self.links[number].kill()
        if self.checks.is_complete and not self.agents.told_to_end:
            self.agents.hang_up()
        self.agents.act(now)

    def next_due(self, now: float) -> float:
        """See Ranks."""
        late_s = self._began_at + GREETING_SECONDS - now
        return min(self.agents.next_due(now), late_s if late_s > 0 else math.inf)

    def _conclude(self) -> JobEnded:
        """Well unless the user, or the end of the launcher, ended this."""
        return JobEnded(self.supervisor.ending.exit_code or 0)
