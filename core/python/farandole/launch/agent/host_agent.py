"""The program that starts and supervises the ranks of one host for a launcher elsewhere.

    ssh HOST python -m farandole.launch.agent.host_agent [STDIN]

STDIN is the descriptor of what rank 0 gets as its stdin, which is empty otherwise. The agent reads the frames of the
launcher from its own stdin and answers on stdout. At the end of stdin it kills its ranks and ends: the launcher, its
ssh or its host is gone. A launcher that says nothing for so long is gone, too.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from farandole._start import frames, this_host
from farandole._start.membership_channel import Message
from farandole._start.proof import job_key
from farandole.launch import environment, guard, local, rank_exit
from farandole.launch.agent.address_probe import Prober
from farandole.launch.environment import own_version
from farandole.launch.events import JobEnded
from farandole.launch.head.ssh import last_line
from farandole.launch.placement import Placement
from farandole.launch.processes import Children, Start
from farandole.launch.relay import Forwarder, OutputOptions
from farandole.launch.spec import SpecError
from farandole.launch.supervise import ENDING, Supervisor
from farandole.launch.writer import Outgoing
from farandole.observe.snapshot import Snapshot

_CHUNK = 1 << 16
_CANNOT_START = 2
_LOOK_SECONDS = 0.02  # between two looks at a probe that is under way
_MOST_SECRET_BYTES = 4096


class CheckProcess:
    """The child that checks this host for `farandole doctor -H`. It writes to memory, so nobody waits.

    The agent reaps it, and kills it where it ends first.
    """

    def __init__(self, environment: Mapping[str, str], limit_s: float) -> None:
        """Raises OSError. REQUIRES one thread."""
        self._out, self._err = (os.fdopen(os.memfd_create(f"farandole {name}"), "rb") for name in ("out", "err"))
        args = [sys.executable, "-m", "farandole.observe.doctor.run_checks", str(limit_s)]
        self._process = guard.start_child(
            args, env=environment, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err
        )

    @property
    def pid(self) -> int:
        """The child."""
        return self._process.pid

    def answer(self, code: int) -> dict[str, Any]:
        """Findings and versions, or the only key "error", of a child that has ended with this code."""
        self._process.returncode = code
        out, err = (os.pread(each.fileno(), os.fstat(each.fileno()).st_size, 0) for each in (self._out, self._err))
        try:
            answer: dict[str, Any] = json.loads(out.splitlines()[-1])
        except (IndexError, ValueError):
            return {"error": f"it could not be checked{last_line(err.decode(errors='replace'))}"}
        return answer


@dataclass(kw_only=True)
class Agent:
    """Has the ranks of this host; what the user's signals are for others, a launcher's messages are here."""

    supervisor: Supervisor
    commands: int  # descriptor
    answers: int
    gets_stdin: bool = False  # rank 0, if it is here
    secret: bytes = (
        b""  # of the tasks of a cluster: the key of the ranks is made of it, and the launcher does not know it
    )
    reader: frames.FrameReader = field(default_factory=lambda: frames.FrameReader(greeted=True))
    children: Children = field(init=False)
    _prober: Prober | None = None
    _check_process: CheckProcess | None = None
    _reserved: list[socket.socket] = field(default_factory=list)
    _heard_at: float = field(default_factory=time.monotonic)
    _order: frames.Message | None = None  # to start, once the whole function is here
    _call: int = -1  # descriptor of that function
    _started: bool = False
    _dismissed: bool = False
    _patience_s: float = rank_exit.Death.orphaned_s  # with a launcher that sends something each second
    _is_elastic: bool = False

    def __post_init__(self) -> None:
        if self.gets_stdin:
            self._patience_s = math.inf  # the launcher is on this host, so its end shows
        supervisor = self.supervisor
        self._out = Outgoing(self.answers, supervisor.selector)
        self.children = Children(supervisor, self, on_other_child=self._on_other_child)
        self.tell, self.reap = self.children.tell, self.children.reap
        supervisor.ranks, supervisor.conclude = self, self.conclude
        supervisor.on_signal, supervisor.on_orphaned = self.on_signal, self.on_orphaned
        os.set_blocking(self.commands, False)
        supervisor.selector.register(self.commands, selectors.EVENT_READ, self.hear_launcher)

    def greet(self) -> None:
        """Say who we are, and send the output of the ranks to the launcher."""
        self.supervisor.relay = Forwarder(self.supervisor.options, self.supervisor.selector, self._out)
        self._out.write(frames.GREETING)
        self.say("greeting", **about_this_host())

    # The launcher's messages

    def hear_launcher(self) -> None:
        """Do what the launcher says, as far as it has said it."""
        try:
            data = os.read(self.commands, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # a connection's
            data = b""
        if not data:
            self.supervisor.selector.unregister(self.commands)
            self.lose_launcher()
            return
        self._heard_at = time.monotonic()
        for frame in self.reader.feed(data):
            if isinstance(frame, dict):
                self.obey(frame)
            elif frame.pipe == frames.CALL:
                self._take_call(frame.data)

    def lose_launcher(self) -> None:
        """The launcher is gone: end the ranks."""
        self.supervisor.launcher_gone()
        self.children.others_may_come = False
        if not self.children.alive:
            self._dismissed = True

    def obey(self, message: frames.Message) -> None:
        """Do what a message says."""
        kind = message["kind"]
        if kind in ("listen", "quiet") and self._prober is not None:
            self._prober.close()
        if kind == "listen":
            self._prober = Prober(message["host"], bytes.fromhex(message["probe_key"]))
            self.say("listening", ports=self._prober.listen(message["addresses"]))
        elif kind == "probe" and self._prober is not None:
            self._prober.start([(int(host), str(address), int(port)) for host, address, port in message["targets"]])
        elif kind == "clock":
            self.say("clock", time_s=time.time())
        elif kind == "check":
            self._check(message)
        elif kind == "reserve":
            self._reserve(message["address"])
        elif kind == "start":
            self._order = message
            self._start_if_all_is_here()
        elif kind == "tell":
            self._pass_on(message)
        elif kind == "more":
            self._start_one_more(Placement(**message["placement"]))
        elif kind == "membership":
            self.children.tell_member(message["rank"], message["message"])
        elif kind == "leave":
            self.children.ask_to_leave(message["ranks"])
        elif kind == "evict":
            self.children.evict(message["rank"])
        elif kind == "dismiss":
            self.children.others_may_come = False
        elif kind == "beat" and message["answer"]:
            self.say("beat")
        elif kind == "ended" and self._started:  # else no rank here has heard of it
            self.children.records.end(message["rank"], message["pid"], message["code"], message["joins"])
        elif kind == "kill":
            self.supervisor.launcher_gone()

    def _check(self, message: frames.Message) -> None:
        try:
            self._check_process = CheckProcess(
                {**environment.inherited(), **message["environment"]}, message["limit_s"]
            )
        except OSError as error:
            self.say("checked", error=f"a process cannot be started: {error.strerror}")

    def _on_other_child(self, pid: int, code: int) -> None:
        if self._check_process is not None and pid == self._check_process.pid:
            self.say("checked", **self._check_process.answer(code))

    def _pass_on(self, message: frames.Message) -> None:
        signum = message["signum"]
        if signum in ENDING and not message["spare_ending"]:
            self.supervisor.ending.interrupted(signum, time.monotonic())
        was_suspended = self.supervisor.suspended and signum != signal.SIGCONT
        self.supervisor.suspended = signum == signal.SIGSTOP or was_suspended
        self.tell(signum, message["groups"], message["spare_ending"])

    def _reserve(self, address: str) -> None:
        """Hold two ports, which rank 0 will listen at: of the store, and for torch.distributed."""
        try:
            self._reserved, store, master_port = local.reserve_endpoints(address)
        except OSError as error:
            self.say("refused", why=f"it cannot listen at {address}: {error.strerror}.")
            return
        self.say("reserved", store=store, master_port=master_port)

    # The ranks

    def _take_call(self, data: bytes) -> None:
        """A piece of the function that our ranks will call; it may come before or after the order to start."""
        if self._call < 0:
            self._call = local.make_call()
        view = memoryview(data)
        while view:
            view = view[os.write(self._call, view) :]
        self._start_if_all_is_here()

    def _start_if_all_is_here(self) -> None:
        here = os.fstat(self._call).st_size if self._call >= 0 else -1
        if self._order is not None and here >= self._order["call_bytes"]:
            order, self._order = self._order, None
            self.start_all(order)

    def start_all(self, message: frames.Message) -> None:
        """Start the ranks of this host, or say why that cannot be."""
        if self._prober is not None:
            self._prober.close()
        try:
            self._start_ranks(message)
        except SpecError as error:
            self.refuse(str(error), error.exit_code)
        except OSError as error:
            self.refuse(f"it cannot start {len(message['placements'])} ranks: {error.strerror}.", _CANNOT_START)
        else:
            self.say("started", pids={rank.placement.rank: rank.pid for rank in self.children.alive.values()})
        self._started = True

    def refuse(self, why: str, code: int) -> None:
        """Our ranks cannot start."""
        self.say("refused", why=why, exit_code=code)
        self.supervisor.launcher_gone()

    def _start_ranks(self, message: frames.Message) -> None:
        self.supervisor.ending.grace_s = message["grace_s"]  # the launcher's, whatever is set on this host
        _enter(message["folder"])
        base = {**environment.inherited(), **message["environment"]}
        self._patience_s = max(self._patience_s, environment.silence_s(base))
        command = local.resolve_command(message["command"], message["module"], base.get("PATH"))
        _check_timeline(base.get("FARANDOLE_TIMELINE", ""))
        key = bytes.fromhex(message["key"])
        self._is_elastic, self.children.others_may_come = message["elastic"], message["stays"]
        self.children.prepare(
            Start(
                command=command,
                base=base,
                secret=job_key(key, self.secret) if self.secret else key,
                capacity=message["capacity"],
                store=message["store"],
                master=(message["master_address"], message["master_port"]),
                start_timeout_s=message["start_timeout_s"],
                bind_to=message["bind_to"],
                address=message["address"],
                call=self._call,
                is_elastic=self._is_elastic,
                gets_stdin=self.gets_stdin,
            )
        )
        signal.pthread_sigmask(signal.SIG_BLOCK, guard.HANDLED)
        try:
            for each in message["placements"]:
                self.children.start(Placement(**each))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, guard.HANDLED)

    def _start_one_more(self, placement: Placement) -> None:
        """A rank joins the job. Where there is no room for its process, the launcher hears that it has ended."""
        try:
            self.children.start_newcomer(placement)
        except (OSError, SpecError):
            self.say("death", **rank_exit.to_message(rank_exit.Death(placement, 0, 1, 0.0, 0.0), joins=0))

    # What the ranks do

    def note_death(self, death: rank_exit.Death) -> None:
        """See Listener; the launcher judges, and decides whether an elastic job goes on."""
        self.say("death", **rank_exit.to_message(death, self.children.records.joins(death.placement.rank)))
        if not self._is_elastic:
            self.supervisor.note_death(death)

    def note_snapshot(self, snapshot: Snapshot, now: float) -> None:
        """See Listener. Only the launcher of all hosts can tell who waits for whom."""
        self.say("snapshot", **snapshot.message(round(now * 1e9)))

    def hear_member(self, rank: int, message: Message) -> None:
        """See Listener; the launcher decides."""
        self.say("membership", rank=rank, message=message)

    # The supervisor's questions

    @property
    def running(self) -> int:
        """See Ranks."""
        return len(self.children.alive)

    @property
    def anything_left(self) -> bool:
        """Before the start the agent itself is what is left; it stays without ranks where others may come."""
        is_waiting = not self._started or self.children.others_may_come
        return not self._dismissed and (is_waiting or self.children.anything_left)

    def kill(self) -> None:
        """See Ranks."""
        self.children.kill()

    def on_signal(self, signum: int) -> None:
        """See Supervisor. The user's own signal is for the launcher, which passes it on, so this one is for us.

        SIGTERM is a notice for the ranks of an elastic job that this host goes away.
        """
        if signum in ENDING and self.children.others_may_come:
            self.children.others_may_come = False
            self.say("leaving")
        if self._is_elastic and signum == signal.SIGTERM and self.children.alive:
            self.tell(signum)
            return
        if signum in ENDING:
            self.say("ending", why=signal.Signals(signum).name, code=128 + signum)
        self.supervisor.obey_signal(signum)

    def on_orphaned(self) -> None:
        """See Supervisor: of our two processes the outer one is gone."""
        self.say("ending", why="SIGKILL", code=128 + signal.SIGKILL)
        self.supervisor.launcher_gone()

    def next_due(self, now: float) -> float | None:
        """See Ranks."""
        silent_s = self._heard_at + self._patience_s - now
        times = [max(0.0, silent_s)] if math.isfinite(silent_s) and not self.supervisor.suspended else []
        if (look_due := self.children.next_due(now)) is not None:
            times.append(look_due)
        if self._prober is not None and self._prober.is_trying:
            times.append(_LOOK_SECONDS)
        return min(times, default=None)

    def act(self, now: float) -> None:
        """See Ranks."""
        if self._prober is not None and (reached := self._prober.take_reached()) is not None:
            self.say("reached", reached=reached)
        is_silent = now - self._heard_at >= self._patience_s and not self.supervisor.suspended
        if is_silent or self._out.error is not None:
            self.lose_launcher()
        self.children.act(now)

    def conclude(self) -> JobEnded | None:
        """See Supervisor. The launcher tells the user."""
        self.say("done")
        self.children.forget()
        return JobEnded(0)

    def say(self, kind: str, **content: Any) -> None:
        """Answer the launcher."""
        self._out.write(frames.message(kind, **content))


def about_this_host() -> dict[str, Any]:
    """The facts that the launcher needs before the job."""
    return {
        "version": own_version(),
        "python": sys.executable,
        "host": socket.gethostname(),
        "identity": this_host.identity() + environment.node(),
        "addresses": environment.interface_addresses(),
        "cores": environment.available_cores(),
    }


def _enter(folder: str) -> None:
    if not folder:  # a task of a cluster has one of its own
        return
    try:
        os.chdir(folder)
    except OSError as error:
        why = f"it has no folder {folder}, as the launcher has ({error.strerror}): make it, or start from another one."
        raise SpecError(why) from error


def _check_timeline(path: str) -> None:
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise SpecError(f"it has no folder {folder} for the timeline: make it there.")


def work(lifeline: int, stdin: int = -1, secret: bytes = b"") -> int:
    """Be an agent. The launcher's pipes leave 0 and 1, where what Python and libraries print would mix with frames.

    `stdin`: of rank 0; -1: none.
    """
    commands, answers = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR) if stdin < 0 else stdin, 0)
    os.dup2(2, 1)
    grace_s = environment.settings(environment.inherited()).grace_s
    supervisor = Supervisor(OutputOptions(), grace_s, lifeline)
    agent = Agent(supervisor=supervisor, commands=commands, answers=answers, gets_stdin=stdin >= 0, secret=secret)
    agent.greet()
    return supervisor.run()


def main() -> NoReturn:
    """Run the agent and exit."""
    stdin, secret = (int(sys.argv[1]) if len(sys.argv) > 1 else -1), b""
    if len(sys.argv) > 3:
        guard.die_with_parent(int(sys.argv[2]))  # the inner process then finds its lifeline closed, and ends the ranks
        with open(int(sys.argv[3]), "rb") as reader:
            secret = reader.read(_MOST_SECRET_BYTES)
    sys.exit(guard.run_guarded(partial(work, stdin=stdin, secret=secret)))


if __name__ == "__main__":
    main()
