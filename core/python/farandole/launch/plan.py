"""Turns a spec into a job that can start: the host of each rank, the environment, and what is served beside."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from farandole._start.timeline_files import file_of
from farandole.launch import environment, gpus, hosts, job_file_checks, local, placement, schedulers
from farandole.launch.discovery import choice
from farandole.launch.events import JobEnded
from farandole.launch.guard import tell_user
from farandole.launch.hosts import LOCAL_HOST, is_local
from farandole.launch.messages import table
from farandole.launch.node_options import NodeOptions, node_options
from farandole.launch.options import Elastic, HostOptions, elastic, interfaces, reach_options, without_effect
from farandole.launch.relay import OutputOptions
from farandole.launch.spec import JobSpec, Metrics, SpecError

if TYPE_CHECKING:
    from farandole.launch.discovery.source import Source
    from farandole.launch.job_file import JobFile
    from farandole.launch.schedulers import Scheduler
    from farandole.observe.live.command import Wanted


@dataclass(frozen=True)
class Caller:
    """The program that called `farandole.launch.run`, as the descriptors that it passed."""

    call: int  # memory with the function of `farandole.run` and its arguments; -1: none
    pipe: int  # for events, and for what its ranks leave
    cluster: str = ""  # in whose tasks the agents run; "": the caller started none
    server: str = ""  # the abstract name of the socket that has the connections to them

    def tell(self, ended: JobEnded) -> None:
        """Tell how the job has ended, where no supervisor does."""
        os.write(self.pipe, ended.to_frame())


@dataclass(frozen=True)
class Job:
    """One job, from the options of `farandole run` or `farandole bench`."""

    command: Sequence[str]  # resolved; as typed where there are several hosts, which resolve it each for itself
    placements: Sequence[placement.Placement]
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
        """Return whether this machine has that name."""
        return is_local(host, self.local_names)

    @property
    def has_other_hosts(self) -> bool:
        """Return whether some ranks run elsewhere, or may run there later."""
        return self.source is not None or not all(self.is_local(placement.host) for placement in self.placements)

    def preview(self) -> str:
        """The text of `farandole run --dry-run`: a line for each rank; after it, the lines of a job file."""
        places = [(str(each.rank), each.host, str(each.local_rank)) for each in self.placements]
        columns = ("rank", "host", "local rank")
        if not self.lines:
            text = shlex.join(self.command)
            return table([(*columns, "command"), *((*place, text) for place in places)])
        steps = [(str(number), line) for number, line in enumerate(self.lines, 1)]
        return f"{table([columns, *places])}\n\n{table([('line', 'command of all ranks'), *steps])}"


@dataclass(frozen=True)
class _Layout:
    """Where the ranks run."""

    placements: list[placement.Placement]
    names: frozenset[str]  # of this machine
    scheduler: Scheduler | None = None  # whose allocation has the hosts
    source: Source | None = None  # where to ask for hosts again


def plan(
    spec: JobSpec,
    base: Mapping[str, str],
    say: Callable[[str], None],
    caller: Caller | None = None,
    is_preview: bool = False,
) -> Job:
    """The job of a spec. Waits for hosts that are to be discovered.

    Args:
        spec: what the user wants.
        base: the environment of the launcher.
        say: shows the user a sentence at once.
        caller: the program that runs the job, if it is not the command line.
        is_preview: nothing will be started.

    Raises:
        SpecError: with one sentence for the user.
    """
    settings, ranks = environment.settings(base), spec.ranks
    file = None if ranks.file is None else job_file_checks.load(ranks.file, spec.command, ranks.module, is_preview)
    nodes = _nodes(spec, base)
    layout = _layout(spec, base, file, say, caller, is_preview) if nodes is None else _of_nodes(nodes)
    given = environment.given_variables(ranks.env, base)
    if file is not None:
        given |= job_file_checks.variables(file, {**base, **given}, str(Path.cwd()), time.time())
    ranks_base = _environment(spec, {**base, **given})
    silence_s = environment.silence_s(ranks_base)
    is_elsewhere = not nodes and (
        layout.source is not None or not all(hosts.is_local(each.host, layout.names) for each in layout.placements)
    )
    goes_on = elastic(spec, len(layout.placements), ranks_base, nodes is not None)
    notes = [] if file is None else job_file_checks.notes(file, base, layout.placements, layout.names, is_preview)
    if goes_on is None and (sentence := without_effect(spec)):
        notes.append(sentence)
    return Job(
        command=_command(spec, file, len(layout.placements), is_elsewhere, ranks_base),
        placements=layout.placements,
        base=ranks_base,
        grace_s=settings.grace_s,
        output=_output(spec, settings, caller),
        start_timeout_s=ranks.start_timeout,
        hosts=replace(
            reach_options(spec.where, is_elsewhere),
            bind_to=ranks.bind_to,
            scheduler=layout.scheduler,
            env=given,
            silence_s=silence_s,
        ),
        module=ranks.module,
        local_names=layout.names,
        lines=() if file is None else file.lines,
        call=-1 if caller is None else caller.call,
        notes=notes,
        nodes=nodes and replace(nodes, silence_s=silence_s),
        elastic=goes_on,
        source=layout.source,
        served=_served(spec),
        end=tell_user if caller is None else caller.tell,
    )


def hints(planned: Job) -> list[str]:
    """Sentences about variables whose effect is not what the user may expect."""
    from farandole.launch import horovod
    from farandole.observe.doctor.settings import likely_slips

    found = [horovod.about_settings(planned.base), gpus.sharing(planned.base, planned.placements[0].local_size)]
    return [*likely_slips(planned.base), *filter(None, found)]


def _command(
    spec: JobSpec, file: JobFile | None, ranks: int, is_elsewhere: bool, base: Mapping[str, str]
) -> Sequence[str]:
    """The command to run; as typed with several hosts, each of which resolves it."""
    command = spec.command if file is None else ("sh", "-c", file.lines[0])
    if not command:
        raise SpecError("say what to run: farandole run -np 4 python train.py", "command")
    if not spec.ranks.module:
        local.check_program(command, ranks, is_elsewhere)
    return command if is_elsewhere else local.resolve_command(command, spec.ranks.module, base.get("PATH"))


def _output(spec: JobSpec, settings: environment.Settings, caller: Caller | None) -> OutputOptions:
    options = OutputOptions(
        prefix=spec.output.prefix,
        timestamp=spec.output.timestamp,
        directory=spec.output.output_dir,
        no_color=settings.no_color,
        force_color=settings.force_color,
        dumb_terminal=settings.dumb_terminal,
        verbose=spec.output.verbose,
    )
    return options if caller is None else replace(options, program=caller.pipe)


def _served(spec: JobSpec) -> Wanted | None:
    """The page and the metrics, if any are to be served."""
    page = 0 if spec.observe.live and spec.observe.live_port is None else spec.observe.live_port
    if page is None and spec.metrics == Metrics():
        return None  # without importing the server
    from farandole.observe.live.command import wanted

    return wanted(page, spec.metrics)


def _nodes(spec: JobSpec, base: Mapping[str, str]) -> NodeOptions | None:
    """This node, where the job has several that start themselves."""
    named = () if spec.where.network_interfaces is None else interfaces(spec.where.network_interfaces)
    return node_options(spec, lambda: _slots_here(base), base.get("FARANDOLE_START_TIMEOUT", ""), named)


def _slots_here(base: Mapping[str, str]) -> int:
    return gpus.count(base) or environment.available_cores()


def _of_nodes(nodes: NodeOptions) -> _Layout:
    """Where the ranks run, if all nodes have as many as this one."""
    alike = [placement.HostSlots(f"node {number}", nodes.slots) for number in range(nodes.count)]
    return _Layout(placement.place(nodes.count * nodes.slots, alike), environment.local_names())


def _layout(
    spec: JobSpec,
    base: Mapping[str, str],
    file: JobFile | None,
    say: Callable[[str], None],
    caller: Caller | None,
    is_preview: bool,
) -> _Layout:
    num_proc: str | None = spec.ranks.num_proc
    listed, scheduler = None, None
    source = choice.named_source(spec)
    if source is not None:
        num_proc, listed = choice.hosts_at_start(source, spec, base, say)
    elif spec.where.hosts is not None and spec.where.hostfile is not None:
        raise SpecError("give one of --hosts and --hostfile: both say where the ranks run.", "hosts")
    elif spec.where.hosts is not None:
        listed = hosts.parse_hosts(spec.where.hosts)
    elif spec.where.hostfile is not None:
        listed = hosts.read_hostfile(spec.where.hostfile)
    else:
        listed, scheduler = schedulers.allocation(base)
    names = environment.local_names()
    if caller is not None and caller.cluster:
        from farandole.launch.schedulers import tasks

        scheduler, names = tasks.scheduler(caller.cluster, caller.server), frozenset()
    if source is None:
        source = choice.source_of_list(spec, listed, scheduler, base)
    if not (scheduler and scheduler.has_agents) and (
        source is not None or (listed is not None and any(hosts.is_address(each.host) for each in listed.slots))
    ):
        names |= environment.local_addresses()
    if listed is not None and (sentence := hosts.about_one_machine(listed, names)):
        say(sentence)
    if file is not None:
        listed = job_file_checks.hosts_of(file, spec.ranks.num_proc, listed, gpus.count(base), is_preview)
        return _Layout(placement.plan(str(file.ranks), listed, names), names, scheduler, source)
    here = _slots_here(base) if spec.ranks.num_proc == "auto" else 1
    return _Layout(placement.plan(num_proc, listed, names, here), names, scheduler, source)


def _environment(spec: JobSpec, base: dict[str, str]) -> dict[str, str]:
    """The variables of the ranks, with those that options set."""
    start_timeout = spec.ranks.start_timeout
    if start_timeout is not None and not 0 < start_timeout < float("inf"):
        raise SpecError(
            f"--start-timeout must be a positive number of seconds, not {start_timeout:g}.", "start_timeout"
        )
    if spec.ranks.backend is not None:
        base["FARANDOLE_BACKEND"] = spec.ranks.backend
    environment.check_backends(base)
    if spec.observe.timeline_filename is not None:
        file = _timeline_file(spec.observe.timeline_filename)
        marks = "1" if spec.observe.timeline_mark_cycles else "0"
        base |= {"FARANDOLE_TIMELINE": file, "FARANDOLE_TIMELINE_MARK_CYCLES": marks}
    return base


def _timeline_file(given: str) -> str:
    """The absolute path of a file in a folder that is there."""
    try:
        file = Path(file_of(given))
    except ValueError as error:
        raise SpecError(f"--timeline-filename: {error}.", "timeline_filename") from error
    if file.is_dir():
        raise SpecError(f"--timeline-filename {file} is a folder; name a file in it.", "timeline_filename")
    if not file.absolute().parent.is_dir():
        raise SpecError(
            f"--timeline-filename {file}: there is no folder {file.absolute().parent}.", "timeline_filename"
        )
    return str(file.absolute())
