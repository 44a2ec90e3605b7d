"""A launcher whose ranks outlive it: it leaves a file for the next one, and tells its agents how long they wait."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, field, replace

from farandole.launch.job import Placement
from farandole.launch.outlive import Outlive
from farandole.launch.remote import frames
from farandole.launch.remote.cluster import ClusterSupervisor
from farandole.launch.remote.link import Link
from farandole.launch.remote.state_file import JobRecord, StateFile

REPLACED = 1  # exit code


@dataclass(kw_only=True)
class OutlivedSupervisor(ClusterSupervisor):
    """Supervises agents that outlive it."""

    outlive: Outlive
    file: StateFile
    record: JobRecord  # without the machines of the hosts, which greet first
    _announced: bool = False  # the agents outlive us from now on
    _received: dict[str, int] = field(default_factory=dict)  # frames of output, by host
    _shown: dict[str, int] = field(default_factory=dict)

    def all_started(self) -> None:
        """See ClusterSupervisor. The file comes first: who finds no file can adopt nothing."""
        super().all_started()
        try:
            self.file.write(self.record_of_all())
        except OSError as error:
            self.relay.say(f"farandole: {self.file.path}: {error.strerror}; the ranks end with this launcher.")
            return
        self._announced = True
        for link in self.links:
            self._announce(link)

    def record_of_all(self) -> JobRecord:
        """The content of the file, now that all machines are known."""
        greetings = [host.greeting or {} for host in self.assembly.hosts]
        hosts = [
            replace(each, identity=str(greeting["identity"]))
            for each, greeting in zip(self.record.hosts, greetings, strict=True)
        ]
        return replace(self.record, hosts=hosts)

    def _announce(self, link: Link) -> None:
        record, path = self.record, str(self.outlive.file) if link.is_local else ""
        names = {"job": record.job, "socket": record.socket, "key": record.key, "file": path}
        link.say("outlive", seconds=record.seconds, **names)

    # The agents' messages

    def on_frame(self, link: Link, frame: frames.Message | frames.Output) -> None:
        """See AgentsSupervisor. An agent that outlives us stays until all have said that nothing is left there."""
        if isinstance(frame, frames.Output):
            self._received[link.name] = self._received.get(link.name, 0) + 1
        elif frame["kind"] == "replaced":
            self._leave_to_another()
        elif frame["kind"] == "done" and self._announced:
            link.done = not any(rank in self._placements for rank in link.streams)
            if all(each.done or each.code is not None for each in self.links):
                self.hang_up()
            return
        super().on_frame(link, frame)

    def _leave_to_another(self) -> None:
        why = "this launcher said nothing for so long that its ranks have another one, or wait for it"
        print(f"farandole: {why}: {self.outlive.remedy}.", file=sys.stderr, flush=True)
        os._exit(REPLACED)  # whatever we did now, the ranks are the other one's

    def start_newcomer(self, placement: Placement) -> None:
        """See Supervisor."""
        super().start_newcomer(placement)
        for link in self.links:
            link.done = link.done and placement.rank not in link.streams
        if not self.record.has_other_hosts:
            self.relay.options.hosts.clear()

    # The loop

    def act(self, now: float) -> None:
        """See Supervisor."""
        self.file.touch(now)
        if self._announced and self.relay.flushed:
            for link in self.links:
                count = self._received.get(link.name, 0) - self._shown.get(link.name, 0)
                if count:
                    self._shown[link.name] = self._shown.get(link.name, 0) + count
                    link.say("shown", frames=count)
        super().act(now)

    def hang_up(self) -> None:
        """See AgentsSupervisor. An agent that hears no such word takes it for our death."""
        if self._announced and not self.told_to_end:
            for link in self.links:
                link.say("end")
        super().hang_up()

    def launcher_gone(self) -> None:
        """See Supervisor: of our two processes the outer one was killed, which is the death of the launcher."""
        if self._announced and self.ending.began_at is None:
            os._exit(128 + signal.SIGKILL)
        super().launcher_gone()

    def conclude(self) -> int:
        """See Supervisor. The file stays where a job fails that has lost the way to a host: ranks may live there."""
        code = super().conclude()
        lost = [link.name for link in self.links if link.code is not None and not link.done]
        if self._announced and code != 0 and lost and self.ending.exit_code is None:
            self.relay.say(
                f"farandole: the way to {', '.join(lost)} is lost; where agents live there, {self.outlive.remedy}."
            )
        else:
            self.file.remove()
        return code
