"""Runs a job on several hosts: connects the agents, starts the ranks, relays output, decides the end."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from farandole._start import frames
from farandole._start.membership_channel import Message
from farandole.launch import rank_exit
from farandole.launch.events import JobEnded, RankStarted
from farandole.launch.head import ssh
from farandole.launch.head.address_search import AssemblyError, Send
from farandole.launch.head.agent_link import NO_AGENT_REMEDY, Link
from farandole.launch.head.assembly import Assembly
from farandole.launch.head.follow import Follower
from farandole.launch.placement import Placement
from farandole.launch.supervise import ENDING, Supervisor

CANNOT_START = 2
_STEP_SECONDS = 30.0  # for one answer of all agents, once ssh has connected
_LEAST_PATIENCE_SECONDS = 2.0  # with an agent that answers each second
_GATHER_SECONDS = 1.0  # after the first host that fails, for others that fail, too
_MOST_SENTENCES = 8
_NAMED_HOSTS = 4
_HEARTBEAT_SECONDS = 1.0
_HANG_UP_SECONDS = 1.5  # from closing an agent's stdin to killing our end
_QUIET_START_SECONDS = 2.0  # a start that takes no longer needs no explanation


@dataclass(kw_only=True)
class Cluster:
    """The agents of all hosts, and the ranks through them."""

    supervisor: Supervisor
    assembly: Assembly
    python: str = ""  # on other hosts
    program: str = "ssh"  # that reaches the hosts
    silence_s: float = 4.0  # of a host until it counts as lost
    call: int = -1  # descriptor of the function that the ranks call
    follower: Follower | None = None  # of a job whose hosts come and go
    can_start_without: Callable[[Collection[str]], bool] = lambda _: False  # hosts that are to blame for a failed start
    refused: dict[str, str] = field(default_factory=dict)  # those hosts, and why; then `run` has returned RESTART
    links: list[Link] = field(default_factory=list)
    _is_ending: bool = False  # the agents
    _beat_at: float = field(default_factory=time.monotonic)
    _hung_up_at: float | None = None
    _placements: dict[int, Placement] = field(default_factory=dict)  # of ranks that have not ended
    _pids: dict[int, int] = field(default_factory=dict)
    _started_at: float = 0.0
    _step_at: float = field(default_factory=time.monotonic)
    _began_at: float = field(default_factory=time.monotonic)
    _sentences: list[str] = field(default_factory=list)  # why the job cannot start
    _refused_at: float | None = None
    _refusal_code: int = CANNOT_START

    def __post_init__(self) -> None:
        supervisor = self.supervisor
        self.relay, self.ending = supervisor.relay, supervisor.ending
        self.lease, self.slots = supervisor.lease, supervisor.slots
        supervisor.ranks = supervisor.members = self
        supervisor.on_signal, supervisor.on_orphaned = self.on_signal, self.on_orphaned
        supervisor.conclude, supervisor.where_output_is = self.conclude, self.where_output_is

    def add(self, link: Link) -> None:
        """The link to the next host of the assembly."""
        plan = self.assembly.hosts[len(self.links)]
        self.links.append(link)
        for placement in plan.placements:
            self._placements[placement.rank] = placement
            link.streams[placement.rank] = self.relay.add_remote(placement.rank)

    @property
    def anything_left(self) -> bool:
        """See Ranks: an agent, or our connection to it."""
        return any(link.code is None for link in self.links)

    @property
    def running(self) -> int:
        """See Ranks."""
        return len(self._placements)

    @property
    def _patience_s(self) -> float:
        """How long to wait for an agent once the other ranks have lost those of its host. Agents answer each second."""
        return max(_LEAST_PATIENCE_SECONDS, self.silence_s - 0.5)

    def ranks_of(self, link: Link) -> list[int]:
        """The ranks of this host that have not ended."""
        return [rank for rank in link.streams if rank in self._placements]

    def evict(self, rank: int) -> None:
        """See Members. A host that says nothing is lost as a whole."""
        for link in self.links:
            if rank in link.streams and time.monotonic() - link.heard_at >= self._patience_s:
                link.kill()
            elif rank in link.streams:
                link.say("evict", rank=rank)

    def start_newcomer(self, placement: Placement) -> None:
        """See Members."""
        link = next((link for link in self.links if link.name == placement.host and link.code is None), None)
        if link is None:
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        self.relay.open_logs([placement.rank])
        self.relay.options.hosts[placement.rank] = placement.host
        self._placements[placement.rank] = placement
        link.streams[placement.rank] = self.relay.add_remote(placement.rank)
        link.say("more", placement=asdict(placement))

    def where_output_is(self, rank: int) -> str:
        """See Supervisor."""
        dialled = [each.name for each in self.links if each.is_launcher and rank in each.streams]
        return f"the output of {dialled[0]}" if dialled else ""

    # The supervisor's questions

    def tell(self, signum: int, groups: bool = False, spare_ending: bool = False) -> None:
        """See Ranks."""
        if not self.assembly.is_complete:
            self._hang_up()
        self._say_to_all("tell", signum=signum, groups=groups, spare_ending=spare_ending)

    def on_signal(self, signum: int) -> None:
        """See Supervisor. Agents that have dialled in tell their users why the job ends."""
        if signum in ENDING:
            self._say_to_all("ending", why=signal.Signals(signum).name, code=128 + signum)
        self.supervisor.obey_signal(signum)

    def on_orphaned(self) -> None:
        """See Supervisor."""
        self._say_to_all("ending", why="SIGKILL", code=128 + signal.SIGKILL)
        self.supervisor.launcher_gone()

    # The agents

    def _say_to_all(self, kind: str, **content: Any) -> None:
        for link in self.links:
            link.say(kind, **content)

    def kill(self) -> None:
        """See Ranks. The agents kill what is there; then our connections to them go."""
        self._say_to_all("kill")
        self._hang_up()

    def _hang_up(self) -> None:
        self._is_ending = True
        if self._hung_up_at is None:
            self._hung_up_at = time.monotonic()
            for link in self.links:
                link.hang_up()

    def reap(self, now: float) -> None:
        """See Ranks. Children of ours are connections to agents, and questions to a source of hosts."""
        for link in list(self.links):
            if link.is_closed:
                self._end_link(link, 0 if link.done else rank_exit.LOST, now)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            found = next((each for each in self.links if each.process and each.process.pid == pid), None)
            if found is not None:
                self._end_link(found, code, now)
            elif self.follower is not None:
                self.follower.query.reaped(pid, code)

    # Their messages

    def on_frame(self, link: Link, frame: frames.Message | frames.Output) -> None:
        """Handle a frame of an agent. Output of a rank that is not on its host is dropped."""
        if isinstance(frame, frames.Output):
            self._relay(link, frame)
            return
        link.greeted = True
        if frame["kind"] == "death":
            self._on_death(link, frame)
        elif frame["kind"] == "beat":
            return
        elif frame["kind"] == "membership":
            if frame["rank"] in link.streams:
                self.supervisor.hear_member(frame["rank"], frame["message"])
        elif frame["kind"] == "snapshot":
            self.supervisor.hear_snapshot(link.name, frame, len(self._placements))
        elif frame["kind"] == "ending":
            link.ended_by = frame["why"], frame["code"]
        elif frame["kind"] == "done":
            link.done = not self.ranks_of(link)
            link.hang_up()
        elif self.follower is not None and self.assembly.is_complete:
            self.follower.on_message(link, frame)
        elif frame["kind"] == "leaving":
            return
        elif self._refused_at is None:
            self._assemble(link, frame)

    def _relay(self, link: Link, output: frames.Output) -> None:
        pair = link.streams.get(output.rank)
        if pair is not None and output.pipe == frames.OUTCOME:
            self.relay.feed_outcome(output.rank, output.data)
        elif pair is not None:
            self.relay.feed(pair[output.pipe], output.data, time.monotonic())

    def _assemble(self, link: Link, message: frames.Message) -> None:
        if message["kind"] == "started":
            self._pids.update((int(rank), pid) for rank, pid in message["pids"].items())
            host = self.assembly.hosts[self.links.index(link)].placements[0].host
            for rank in message["pids"]:
                self.relay.emit(RankStarted(int(rank), host, message["pids"][rank]))
        try:
            sends = self.assembly.on_message(self.links.index(link), message)
        except AssemblyError as error:
            self._refuse(str(error), error.hosts, message.get("exit_code", CANNOT_START))
            return
        except (KeyError, TypeError, ValueError):
            self._refuse(f"{link.name}: its agent's message {message['kind']!r} is invalid.", [link.name])
            return
        self._send(sends)
        if self.assembly.is_complete and not self._started_at:
            self._started_at = time.monotonic()
            self.relay.status("")
            if self.supervisor.options.verbose:
                self.relay.say(self.assembly.summary())

    def _send(self, sends: Sequence[Send]) -> None:
        if sends:
            self._step_at = time.monotonic()
        for number, kind, content in sends:
            self.links[number].say(kind, **content)

    def tell_member(self, rank: int, message: Message) -> None:
        """See Members."""
        for link in self.links:
            if rank in link.streams:
                link.say("membership", rank=rank, message=message)

    def _look_for_silent(self, now: float) -> None:
        """Declare hosts lost that are silent while the other ranks of an elastic job have lost their ranks."""
        if self.lease is None:
            return
        for link in self.links:
            is_silent = now - link.heard_at >= self._patience_s
            if is_silent and link.code is None and self.lease.has_lost(link.streams.keys()):
                link.kill()

    def _on_death(self, link: Link, message: frames.Message) -> None:
        now = time.monotonic()
        placement = self._placements.pop(message["rank"], None) if message["rank"] in link.streams else None
        if placement is None:
            return
        death = rank_exit.from_message(message, placement, now, link.agent, None if self._is_ending else link.ended_by)
        self._note_end(link, death, message["joins"])

    def _end_link(self, link: Link, code: int, now: float) -> None:
        link.end(code)
        for pair in link.streams.values():
            for stream in pair:
                self.relay.finish(stream)
        if self.follower is not None and self.assembly.is_complete:
            self.links.remove(link)
            if self.follower.link_ended(link, now):
                return
        if link.done:
            return
        text = link.stderr.decode(errors="replace")
        if not link.greeted:
            self._refuse(f"{self.why_no_agent(link, text)}.", [link.name])
            return
        if not self.assembly.is_complete and not self._is_ending:
            self._refuse(f"{link.name} was lost while the job started{ssh.last_line(text)}.", [link.name])
        if self.slots is not None:
            self.slots.close(link.name)
        how = link.how_it_ended()
        for rank in self.ranks_of(link):
            placement = self._placements.pop(rank)
            code = link.code or rank_exit.LOST
            ran_s = now - (self._started_at or now)
            death = rank_exit.Death(
                placement,
                self._pids.get(rank, 0),
                code,
                now,
                ran_s,
                self._is_ending,
                lost=how,
                orphaned_s=max(rank_exit.Death.orphaned_s, self.silence_s),
            )
            self._note_end(link, death, joins=0)

    def _note_end(self, link: Link, death: rank_exit.Death, joins: int) -> None:
        """A rank has ended: tell the other agents."""
        self.supervisor.note_death(death)
        for other in self.links:
            if other is not link:
                other.say("ended", **rank_exit.to_message(death, joins))

    def why_no_agent(self, link: Link, stderr: str) -> str:
        """Why a connection ended before its agent sent a greeting."""
        if link.error:
            return f"{link.error}; {NO_AGENT_REMEDY}"
        assert link.code is not None
        if link.connection is not None:
            return f"{link.name}: {link.how_it_ended()}"
        if link.is_local:
            return f"{link.name}: the agent on this host ended with {ssh.manner(link.code)}{ssh.last_line(stderr)}"
        if self.program != "ssh":
            return f"{link.name}: {self.program} ended with {ssh.manner(link.code)}{ssh.last_line(stderr)}"
        return "; ".join(filter(None, ssh.cause(link.name, link.code, stderr, self.python, self.assembly.version)))

    def _refuse(self, sentence: str, hosts: Sequence[str], code: int = CANNOT_START) -> None:
        """The job cannot start with these hosts. Other hosts that fail soon are reported, too."""
        if self._is_ending:
            return
        self._sentences.append(sentence)
        self.refused.update(dict.fromkeys(hosts, sentence.rstrip(".")))
        if self._refused_at is None:
            self._refused_at, self._refusal_code = time.monotonic(), code

    # The loop

    def next_due(self, now: float) -> float | None:
        """See Ranks."""
        times = [self._beat_at + _HEARTBEAT_SECONDS - now]
        if self._hung_up_at is not None:
            times.append(self._hung_up_at + _HANG_UP_SECONDS - now)
        if self.follower is not None and (wanted := self.follower.next_due(now)) is not None:
            times.append(wanted)
        if self._refused_at is not None:
            times.append(self._refused_at + _GATHER_SECONDS - now)
        return max(0.0, min(times))

    def act(self, now: float) -> None:
        """See Ranks."""
        for link in self.links:
            link.pause(self.relay.is_full and link.code is None)
        if not self.assembly.is_complete and self._refused_at is None:
            self._send_call(now)
            self._look_for_late(now)
            self._show_status(now)
        self._look_for_silent(now)
        if self.follower is not None:
            self.follower.act(now)
        if self._refused_at is not None and not self._is_ending:
            resolved = all(link.greeted or link.code is not None for link in self.links)
            if resolved or now - self._refused_at >= _GATHER_SECONDS:
                self._say_to_all("refused", why=" ".join(self._sentences[:_MOST_SENTENCES]), code=self._refusal_code)
                self._hang_up()
        if now - self._beat_at >= _HEARTBEAT_SECONDS:
            self._beat_at = now
            self._say_to_all("beat", answer=self.lease is not None)
        if self._hung_up_at is not None and now - self._hung_up_at >= _HANG_UP_SECONDS:
            for link in self.links:
                link.kill()

    def _send_call(self, now: float) -> None:
        """Send the function once all hosts have the same Farandole. No host counts as late meanwhile."""
        if self.call >= 0 and self.assembly.all_have_greeted:
            under_way = [link.send_call(self.call) for link in self.links]
            self._step_at = now if any(under_way) else self._step_at

    def _show_status(self, now: float) -> None:
        late = self.assembly.waiting_for()
        if now - self._began_at >= _QUIET_START_SECONDS:
            more = f" and {len(late) - _NAMED_HOSTS} more" if len(late) > _NAMED_HOSTS else ""
            who = ", ".join(late[:_NAMED_HOSTS]) + more
            self.relay.status(f"farandole: waiting for {who} ({now - self._began_at:.0f} s)")

    def _look_for_late(self, now: float) -> None:
        if now - self._step_at < _STEP_SECONDS + ssh.CONNECT_SECONDS:
            return
        late = self.assembly.waiting_for()
        who = ", ".join(late[:_MOST_SENTENCES])
        remedy = f"try: ssh {late[0]} true" if self.program == "ssh" else f"see whether {self.program} works there"
        self._refuse(f"{who} did not answer within {now - self._step_at:.0f} s; {remedy}.", late)

    def conclude(self) -> JobEnded | None:
        """See Supervisor."""
        self.relay.status("")
        if not self._sentences:
            return self.supervisor.decide()
        if self.ending.began_at is None and self.can_start_without(self.refused):
            for sentence in dict.fromkeys(self.refused.values()):
                self.relay.say(f"farandole: {sentence}; the job starts without it.")
            return None
        left = len(self._sentences) - _MOST_SENTENCES
        more = [f"and {left} more hosts failed."] if left > 0 else []
        return JobEnded(self._refusal_code, (*self._sentences[:_MOST_SENTENCES], *more), is_refused=True)
