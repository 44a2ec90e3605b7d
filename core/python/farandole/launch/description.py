"""Everything about a job that is known before it starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from farandole.launch.discovery.source import Source
from farandole.launch.events import JobEnded
from farandole.launch.guard import tell_user
from farandole.launch.hosts import LOCAL_HOST, is_local
from farandole.launch.nodes.options import NodeOptions
from farandole.launch.options import Elastic, HostOptions
from farandole.launch.placement import Placement
from farandole.launch.relay import OutputOptions

if TYPE_CHECKING:
    from farandole.observe.live.command import Wanted


@dataclass(frozen=True)
class Caller:
    """The program that has called `farandole.launch.run`, as descriptors that it has handed to us."""

    call: int  # memory with the function of `farandole.run` and its arguments; -1: none
    outcomes: int  # a pipe for what its ranks leave; -1: none
    events: int  # a pipe
    engine: str = ""  # in whose tasks the agents run; "": the caller started none
    hub: str = ""  # the abstract name of the socket that has the ways to them

    def tell(self, ended: JobEnded) -> None:
        """Tell how the job has ended, where no supervisor does."""
        os.write(self.events, ended.to_json().encode() + b"\n")


@dataclass(frozen=True)
class Job:
    """One job, from the options of `farandole run` or `farandole bench`."""

    command: Sequence[str]  # resolved; as typed where there are several hosts, which resolve it each for itself
    placements: Sequence[Placement]
    base: dict[str, str]  # the environment that the launcher was given
    grace_s: float
    output: OutputOptions
    start_timeout_s: float | None = None
    hosts: HostOptions = field(default_factory=HostOptions)
    module: bool = False  # the command is the name of one
    local_names: Collection[str] = (LOCAL_HOST,)
    lines: Sequence[str] = ()  # of a job file: each replaces the last word of the command in turn
    notes: Sequence[str] = ()  # sentences for the user, before the job starts
    nodes: NodeOptions | None = None  # this one of several; the placements are then those of nodes that are alike
    call: int = -1  # descriptor of the memory with the function that the ranks call
    elastic: Elastic | None = None
    source: Source | None = None  # of hosts, of an elastic job that follows it
    served: Wanted | None = None  # a page that shows the job, and metrics
    end: Callable[[JobEnded], None] = tell_user  # tells how the job has ended, where no supervisor does

    def is_local(self, host: str) -> bool:
        """Returns whether this machine has that name."""
        return is_local(host, self.local_names)

    @property
    def has_other_hosts(self) -> bool:
        """Returns whether some ranks run elsewhere, or may run there later."""
        return self.source is not None or not all(self.is_local(placement.host) for placement in self.placements)
