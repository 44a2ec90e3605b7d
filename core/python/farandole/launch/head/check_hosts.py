"""`farandole doctor -H`: examines all hosts at the same time, by their agents and one thread for each.

    launcher                     agent
                                 greeting
    clock                        its wall clock, at once
    check                        findings and versions, after seconds
    listen, then probe           the addresses of others that it reached: agent/address_probe.py

All hosts that have greeted are asked to listen, and all that listen to probe the others. A host that fails at a step
takes no part in the next ones.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from farandole._start import frames
from farandole.launch import environment, guard
from farandole.launch.ending import CLOSED_STDOUT
from farandole.launch.environment import own_version
from farandole.launch.head import address_search, ssh
from farandole.launch.head.agent_link import NO_AGENT_REMEDY
from farandole.launch.hosts import is_local
from farandole.launch.options import HostOptions
from farandole.observe.doctor import report
from farandole.observe.doctor.finding import Finding
from farandole.observe.doctor.hosts import Clock, HostFacts, Versions, findings_of

GREETING_SECONDS = 10.0
_TRIALS = 4  # of the core, each of `limit_s` at most
_OTHERWISE_SECONDS = 30.0  # for all but the trials
_BEAT_SECONDS = 1.0
_CHUNK = 1 << 16
_CANNOT_START = 1


@dataclass(frozen=True)
class CheckOrder:
    """The hosts to check, and how they are reached."""

    hosts: Sequence[str]
    local_names: Collection[str]
    options: HostOptions
    base: Mapping[str, str]  # the launcher's environment
    limit_s: float
    probe_key: str = field(default_factory=lambda: secrets.token_hex(32))
    ports: dict[int, dict[str, int]] = field(default_factory=dict)  # at which hosts listen, by their numbers


def check_hosts(order: CheckOrder, show: Callable[[Sequence[Finding]], str]) -> int:
    """Print the text that `show` makes of the findings, and leave nothing behind.

    Returns 1 where something is FAIL, else 0; the code of a signal that ended it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, guard.HANDLED)
    try:
        hosts = [Examination(order, number, HostFacts(name)) for number, name in enumerate(order.hosts)]
    except OSError as error:
        print(f"farandole: cannot start {error.filename or 'ssh'}: {error.strerror}.", file=sys.stderr)
        return _CANNOT_START
    for signum in guard.ENDING:
        if signal.getsignal(signum) != signal.SIG_IGN:  # nohup
            signal.signal(signum, lambda number, _: os._exit(128 + number))  # the connections end with us
    signal.pthread_sigmask(signal.SIG_UNBLOCK, guard.HANDLED)
    for step in (Examination.greet, Examination.listen, Examination.probe, Examination.take_findings):
        _on_all([each for each in hosts if not each.facts.problem], step)
    _on_all(hosts, Examination.end)
    found = findings_of([each.facts for each in hosts])
    try:
        print(show(found), flush=True)
    except BrokenPipeError:
        return CLOSED_STDOUT
    return report.exit_code(found)


def _on_all(hosts: Sequence[Examination], step: Callable[[Examination], None]) -> None:
    """At the same time, in threads that do not hold up the end of the program."""
    threads = [threading.Thread(target=each.go_on, args=(step,), daemon=True) for each in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@dataclass
class Examination:
    """The check of one host. Raises OSError if the command that reaches it cannot be started."""

    order: CheckOrder
    number: int
    facts: HostFacts
    _began_at: float = field(default_factory=time.monotonic)
    _reader: frames.FrameReader = field(default_factory=frames.FrameReader)
    _messages: dict[str, frames.Message] = field(default_factory=dict)  # by kind

    def __post_init__(self) -> None:
        order, ssh_args = self.order, environment.settings(self.order.base).ssh
        self._is_local = is_local(self.facts.name, order.local_names)
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as this)
        self._process = guard.start_child(
            ssh.agent_command(self.facts.name, self._is_local, order.options, ssh_args),
            env=environment.without_outer_job(order.base),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )

    # Steps

    def greet(self) -> None:
        """Hear who it is, compare the clocks, and let it begin to check itself."""
        greeting, order = self._hear("greeting", GREETING_SECONDS), self.order
        self.facts.offered = address_search.offered_by(greeting, order.options.interfaces)
        self.facts.python, self.facts.version = str(greeting["python"]), str(greeting["version"])
        self.facts.identity = str(greeting["identity"])
        asked_at, asked_wall_s = time.monotonic(), time.time()
        self._say("clock")
        time_s, half_s = float(self._hear("clock")["time_s"]), (time.monotonic() - asked_at) / 2
        self.facts.clock = Clock(time_s - asked_wall_s - half_s, half_s)
        variables = order.base if self._is_local else environment.for_other_hosts(order.base, {})
        self._say("check", environment=dict(variables), limit_s=order.limit_s)

    def listen(self) -> None:
        """Listen at all of the host's addresses."""
        key, addresses = self.order.probe_key, list(self.facts.offered)
        self._say("listen", host=self.number, addresses=addresses, probe_key=key)
        ports = dict(self._hear("listening")["ports"])
        self.order.ports[self.number] = {str(address): int(port) for address, port in ports.items()}

    def probe(self) -> None:
        """Try the addresses of the others."""
        others = [(number, *each) for number, found in self.order.ports.items() for each in found.items()]
        self._say("probe", targets=[each for each in others if each[0] != self.number])
        self.facts.reached = {(int(to), str(address)) for to, address in self._hear("reached")["reached"]}

    def take_findings(self) -> None:
        """Store the findings of the host's check."""
        message = self._hear("checked")
        if "error" in message:
            self.facts.problem, self.facts.remedy = message["error"], f"run farandole doctor on {self.facts.name}"
            return
        self.facts.versions = Versions(**message["versions"])
        self.facts.findings = [Finding(**each) for each in message["findings"]]

    def end(self) -> None:
        """End the agent by the end of its stdin."""
        try:
            self._process.communicate(timeout=_BEAT_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()

    def go_on(self, step: Callable[[Examination], None]) -> None:
        """Do this step. Where it fails, the connection ends."""
        name = self.facts.name
        try:
            step(self)
            return
        except TimeoutError:
            waited_s = time.monotonic() - self._began_at
            problem, remedy = f"{name} did not answer within {waited_s:.0f} s", f"try it: ssh {name} true"
        except (OSError, EOFError):
            problem, remedy = self._why_it_ended()
        except frames.FrameError as error:
            problem, remedy = f"{name} does not answer like an agent: {error}", NO_AGENT_REMEDY
        except (KeyError, TypeError, ValueError):
            problem, remedy = f"its agent's message {[*self._messages][-1]!r} is invalid", "install one farandole"
        self.facts.problem, self.facts.remedy = problem, remedy
        self._process.kill()

    def _why_it_ended(self) -> tuple[str, str]:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_BEAT_SECONDS)
        self._process.kill()
        code = self._process.wait()
        self._stderr.seek(0)
        text = self._stderr.read().decode(errors="replace")
        if not self.facts.answered:
            return ssh.cause(self.facts.name, code, text, self.order.options.python, own_version())
        by = ssh.last_line(text)
        if "ending" in self._messages:
            by = f": somebody ended its agent by {self._messages['ending']['why']}"
        return f"{self.facts.name} was lost while it was checked{by}", ""

    def _say(self, kind: str, **content: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(frames.message(kind, **content))
        self._process.stdin.flush()

    def _hear(self, kind: str, most_s: float | None = None) -> frames.Message:
        """Wait for this message, until `most_s` after the beginning; other ones are kept."""
        assert self._process.stdout
        descriptor = self._process.stdout.fileno()
        until = self._began_at + (most_s or GREETING_SECONDS + _TRIALS * self.order.limit_s + _OTHERWISE_SECONDS)
        while kind not in self._messages:
            if time.monotonic() >= until:
                raise TimeoutError
            if not select.select([descriptor], [], [], _BEAT_SECONDS)[0]:
                self._say("beat", answer=False)
                continue
            data = os.read(descriptor, _CHUNK)
            if not data:
                raise EOFError
            self._messages |= {frame["kind"]: frame for frame in self._reader.feed(data) if isinstance(frame, dict)}
        return self._messages[kind]
