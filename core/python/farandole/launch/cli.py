"""The command `farandole`: options in, one call, an exit code out. Everything else is imported when it is needed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from farandole._start.timeline_files import file_of
from farandole.launch.shared_options import (
    CONTEXT,
    USAGE,
    Count,
    about_wrong_line,
    host_options,
    metrics_options,
    node_options,
    num_proc_option,
    print_error,
    version_option,
)
from farandole.launch.trace_verbs import report, timeline
from farandole.launch.verbs import bench, doctor, inspect, k8s, live

if TYPE_CHECKING:
    from farandole.launch.description import Caller, Job
    from farandole.launch.discovery.source import Source
    from farandole.launch.engines import Engine
    from farandole.launch.job import Placement
    from farandole.launch.job_file import JobFile
    from farandole.launch.live.command import Wanted
    from farandole.launch.nodes.options import NodeOptions
    from farandole.launch.options import RunOptions

_FILE = click.Path(path_type=Path)


@click.group(name="farandole", invoke_without_command=True, context_settings=CONTEXT)
@version_option
@click.pass_context
def farandole(context: click.Context) -> None:
    """Distributed deep-learning training."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


class _Run(click.Command):
    """Answers horovodrun's options; says where -np lacks its number rather than blame the command's own options."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.allow_from_autoenv = False  # click 8.1 would read FARANDOLE_RUN_HELP
        return option

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from farandole.launch import horovod

        options = [each for each in self.params if isinstance(each, click.Option) and not each.is_flag]
        if answer := horovod.about_flags(args, frozenset(name for each in options for name in each.opts)):
            raise click.UsageError(answer)
        typed = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption:
            _check_count(typed)
            raise


def _check_count(arguments: list[str]) -> None:
    from farandole.launch import job

    for option, value in pairwise(arguments):
        if option in ("-n", "-np", "--num-proc"):
            try:
                job.parse_count("1" if value == "auto" else value, "-np")
            except job.JobError as error:
                raise click.UsageError(str(error)) from error
            return


def _load_config(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    if path is None:
        return None
    from farandole.launch import config

    return config.load(context, parameter, path)


@farandole.command(
    cls=_Run,
    context_settings={**CONTEXT, "allow_interspersed_args": False, "auto_envvar_prefix": "FARANDOLE_RUN"},
    options_metavar="[OPTIONS]",
    short_help="Run a command as the ranks of one job.",
)
@num_proc_option(None, "Number of ranks; by default, and with auto, all slots of the hosts.")
@host_options
@node_options
@click.option(
    *("-x", "--env"),
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Set a variable for the ranks of all hosts, or pass the launcher's value on; repeatable.",
)
@click.option(
    *("--min-np", "--min-num-proc", "min_np"),
    type=Count(1),
    metavar="N",
    help="Go on while N ranks are left, in programs that use elastic.run; by default the number of ranks.",
)
@click.option(
    *("--max-np", "--max-num-proc", "max_np"),
    type=Count(1),
    metavar="N",
    help="Replace lost ranks, and start more where slots are free, up to N. Fewer than --min-np wait for them.",
)
@click.option(
    "--host-discovery-script",
    metavar="COMMAND",
    help="Ask it each second where to run: it prints lines such as h1:4, which may change while the job runs.",
)
@click.option(
    "--host-discovery-service",
    metavar="NAME",
    help="Run where this name's addresses are, which may change, as a headless service of Kubernetes.",
)
@click.option(
    "--slots-per-host", type=Count(1), metavar="N", help="The slots of hosts for which no number was found (1)."
)
@click.option("--reset-limit", type=Count(0), metavar="N", help="End the job once its ranks change more than N times.")
@click.option(
    "--blacklist-cooldown-range",
    type=(float, float),
    metavar="LEAST MOST",
    help="Seconds until a lost rank is replaced (1), twice as long each time, up to the most (60).",
)
@click.option(
    "--elastic-timeout",
    type=float,
    metavar="SECONDS",
    help="How long living ranks have to notice that one is lost, and too few ranks wait for more (600).",
)
@click.option("--bind-to", type=click.Choice(["core", "none"]), default="none", help="Bind ranks to cores.")
@click.option("-m", "module", is_flag=True, help="COMMAND is a Python module, as in python -m.")
@click.option("--prefix/--no-prefix", default=True, help="Begin each line with [rank] (default).")
@click.option("--timestamp", is_flag=True, help="Begin each line with the time of day.")
@click.option("--output-dir", type=_FILE, metavar="DIR", help="Also write DIR/rank.N.log.")
@click.option("--start-timeout", type=float, metavar="SECONDS", help="How long the ranks wait for each other at first.")
@click.option(
    "--backend",
    metavar="NAME,...",
    help="Who performs operations, as FARANDOLE_BACKEND: the first that supports one does.",
)
@click.option(
    "--timeline-filename",
    metavar="FILE",
    help="Record what operations do: FILE or URL with .rankN before its suffix; see `farandole timeline`.",
)
@click.option("--timeline-mark-cycles", is_flag=True, help="Also mark there what was agreed on together.")
@click.option("--live", is_flag=True, help="Serve a page that shows the ranks of this host; prints its address.")
@click.option("--live-port", type=Count(0, 65535), metavar="PORT", help="The page's port, and --live; by default any.")
@metrics_options
@click.option("--verbose", is_flag=True, help="Say what is started, and when each rank ends.")
@click.option(
    "--config-file",
    type=_FILE,
    is_eager=True,
    callback=_load_config,
    metavar="FILE",
    help="Read options from TOML, or from horovodrun's YAML; those that are typed come first.",
)
@click.option(
    "-f", "--file", type=_FILE, metavar="FILE", help="Run the job of this file, in RiseML's form, not COMMAND."
)
@click.option("--dry-run", is_flag=True, help="Print where each rank would run, and start nothing.")
@click.option("--show-config", is_flag=True, help="Print each option's value and its source, and start nothing.")
@version_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [ARGS]...")
@click.pass_context
def run(context: click.Context, /, command: tuple[str, ...], **given: Any) -> int:
    """Run COMMAND as N ranks that train together.

    \b
        farandole run -np 4 python train.py --epochs 3
        farandole run -np 4 train.py
        farandole run -np 4 -m package.train

    Ends with the exit code of the rank that failed first, or 0.
    Each option may stand in the environment, too, as FARANDOLE_RUN_NUM_PROC for --num-proc.
    """  # noqa: D301  (click wants the character)
    from farandole.launch import config, environment, files, job, local
    from farandole.launch.options import OptionError, RunOptions
    from farandole.launch.preview import preview
    from farandole.launch.run import run_job

    options = RunOptions(**given)
    base = config.with_settings(context, environment.inherited())
    if options.show_config:
        click.echo(config.report(context, base))
        return 0
    try:
        described = _describe(context, options, command, base)
    except (job.JobError, files.FileError, environment.SettingError, OptionError) as error:
        raise click.UsageError(str(error)) from error
    except local.CommandError as error:
        print_error(str(error))
        return error.exit_code
    for sentence in described.notes:
        _hint(context.obj, sentence)
    if options.dry_run:
        click.echo(preview(described.placements, described.command, described.lines))
        return 0
    for sentence in _hints(context, described):
        _hint(context.obj, sentence)
    return run_job(described)


def _hint(caller: Caller | None, sentence: str) -> None:
    """Print a sentence where the user sees it at once."""
    if caller is None:
        print_error(sentence)
    else:
        os.write(caller.stderr, f"farandole: {sentence}\n".encode())


def _describe(context: click.Context, options: RunOptions, command: Sequence[str], base: Mapping[str, str]) -> Job:
    """The job of these options. Raises an error that is one sentence for the user."""
    from farandole.launch import environment, hosts, job_machine, local
    from farandole.launch.description import Job
    from farandole.launch.options import elastic, host_options
    from farandole.launch.relay import OutputOptions

    settings = environment.settings(base)
    file = None if options.file is None else job_machine.load(options.file, command, options.module, options.dry_run)
    nodes = _nodes(options, base)
    engine, source = None, None
    if nodes is not None:
        placements, names = _places(nodes)
    else:
        placements, names, engine, source = _placements(context, options, base, file)
    given = environment.given_variables(options.env, base)
    if file is not None:
        given |= job_machine.variables(file, {**base, **given}, str(Path.cwd()), time.time())
    ranks_base = _environment(options, {**base, **given})
    silence_s = environment.silence_s(ranks_base)
    if file is not None:
        command = ("sh", "-c", file.lines[0])
    if not command:
        raise click.UsageError("say what to run: farandole run -np 4 python train.py")
    elsewhere = not nodes and (source is not None or not all(hosts.is_local(each.host, names) for each in placements))
    caller: Caller | None = context.obj
    if not options.module:
        local.check_program(command, len(placements), elsewhere)
    output = OutputOptions(
        prefix=options.prefix,
        timestamp=options.timestamp,
        directory=options.output_dir,
        no_color=settings.no_color,
        force_color=settings.force_color,
        dumb_terminal=settings.dumb_terminal,
        verbose=options.verbose,
    )
    if caller is not None:
        output = replace(output, stderr=caller.stderr, outcomes=caller.outcomes)
    return Job(
        command=command if elsewhere else local.resolve_command(command, options.module, ranks_base.get("PATH")),
        placements=placements,
        base=ranks_base,
        grace_s=settings.grace_s,
        output=output,
        start_timeout_s=options.start_timeout,
        hosts=replace(host_options(options, given, elsewhere, engine), silence_s=silence_s),
        module=options.module,
        local_names=names,
        lines=() if file is None else file.lines,
        call=-1 if caller is None else caller.call,
        notes=() if file is None else job_machine.notes(file, base, placements, names, options.dry_run),
        nodes=nodes and replace(nodes, silence_s=silence_s),
        elastic=elastic(options, len(placements), ranks_base, nodes is not None),
        source=source,
        served=_served(options),
    )


def _served(options: RunOptions) -> Wanted | None:
    """The page and the metrics, if any are to be served."""
    page = 0 if options.live and options.live_port is None else options.live_port
    if (page, options.metrics, options.metrics_address, options.metrics_key_file) == (None, None, None, None):
        return None  # without importing the server
    from farandole.launch.live.options import wanted

    return wanted(page, options.metrics, options.metrics_address, options.metrics_key_file)


def _nodes(options: RunOptions, base: Mapping[str, str]) -> NodeOptions | None:
    """This node, where the job has several that start themselves."""
    from farandole.launch.nodes.options import node_options
    from farandole.launch.options import interfaces

    named = () if options.network_interfaces is None else interfaces(options.network_interfaces)
    return node_options(options, lambda: _slots_here(base), base.get("FARANDOLE_START_TIMEOUT", ""), named)


def _slots_here(base: Mapping[str, str]) -> int:
    from farandole.launch import environment, gpus

    return gpus.count(base) or environment.available_cores()


def _places(nodes: NodeOptions) -> tuple[list[Placement], frozenset[str]]:
    """Where the ranks run if all nodes have as many as this one."""
    from farandole.launch import environment, job

    alike = [job.Slots(f"node {number}", nodes.slots) for number in range(nodes.count)]
    return job.place(nodes.count * nodes.slots, alike), environment.local_names()


def _placements(
    context: click.Context, options: RunOptions, base: Mapping[str, str], file: JobFile | None
) -> tuple[list[Placement], frozenset[str], Engine | None, Source | None]:
    """Where the ranks run, the names of this machine, the engine whose allocation has the hosts, where to ask again."""
    from farandole.launch import config, engines, environment, gpus, hosts, job
    from farandole.launch.discovery import choice

    listed, engine, num_proc = None, None, options.num_proc
    source = choice.named_source(options)
    if source is not None:
        num_proc, listed = choice.hosts_at_start(source, options, base, partial(_hint, context.obj))
    elif options.hosts is not None and config.preferred(context, "hosts", "hostfile") == "hosts":
        listed = hosts.parse_hosts(options.hosts)
    elif options.hostfile is not None:
        listed = hosts.read_hostfile(options.hostfile)
    else:
        listed, engine = engines.allocation(base)
    names = environment.local_names()
    caller: Caller | None = context.obj
    if caller is not None and caller.engine:
        from farandole.launch.engines import tasks

        engine, names = tasks.engine(caller.engine, caller.hub), frozenset()
    if source is None:
        source = choice.source_of_list(options, listed, engine, base)
    if not (engine and engine.has_agents) and (
        source is not None or (listed is not None and any(hosts.is_address(each.host) for each in listed.slots))
    ):
        names |= environment.local_addresses()
    if listed is not None and (sentence := hosts.about_one_machine(listed, names)):
        _hint(caller, sentence)
    if file is not None:
        from farandole.launch import job_machine

        listed = job_machine.hosts_of(file, options.num_proc, listed, gpus.count(base), options.dry_run)
        return job.plan(str(file.ranks), listed, names), names, engine, source
    here = _slots_here(base) if options.num_proc == "auto" else 1
    return job.plan(num_proc, listed, names, here), names, engine, source


def _environment(options: RunOptions, base: dict[str, str]) -> dict[str, str]:
    """The variables of the ranks, with those that options set. Raises UsageError for the value of an option."""
    from farandole.launch import environment

    if options.start_timeout is not None and not 0 < options.start_timeout < float("inf"):
        raise click.UsageError(f"--start-timeout must be a positive number of seconds, not {options.start_timeout:g}.")
    if options.backend is not None:
        base["FARANDOLE_BACKEND"] = options.backend
    environment.check_backends(base)
    if options.timeline_filename is not None:
        base |= environment.for_timeline(_timeline_file(options.timeline_filename), options.timeline_mark_cycles)
    return base


def _timeline_file(given: str) -> str:
    """The absolute path of a file in a folder that is there. Raises UsageError."""
    try:
        file = Path(file_of(given))
    except ValueError as error:
        raise click.UsageError(f"--timeline-filename: {error}.") from error
    if file.is_dir():
        raise click.UsageError(f"--timeline-filename {file} is a folder; name a file in it.")
    if not file.absolute().parent.is_dir():
        raise click.UsageError(f"--timeline-filename {file}: there is no folder {file.absolute().parent}.")
    return str(file.absolute())


def _hints(context: click.Context, job: Job) -> list[str]:
    """Sentences about variables and options that do not do what they seem to."""
    from farandole.launch import config, gpus, horovod
    from farandole.launch.doctor.settings import likely_slips

    hints = [horovod.about_settings(job.base), gpus.sharing(job.base, job.placements[0].local_size)]
    if ignored := config.of_file(context).ignored:
        hints.append(f"no effect here: {', '.join(ignored)} of --config-file; there is nothing to set.")
    slips = [*likely_slips(job.base), *config.unknown_variables(context.command, job.base)]
    return [sentence for sentence in [*slips, *hints] if sentence]


for _verb in (bench, doctor, inspect, k8s, live, report, timeline):
    farandole.add_command(_verb)


def main(arguments: list[str] | None = None, caller: Caller | None = None) -> NoReturn:
    """Run the command line and exit: 2 for what was typed wrongly, else as the verb decides.

    `caller`: the program that has called `farandole.run`.
    """
    if sys.platform != "linux":
        print_error(f"Farandole runs on Linux; {sys.platform} is not supported.")
        sys.exit(USAGE)
    try:
        code = farandole.main(arguments, prog_name="farandole", standalone_mode=False, obj=caller)
    except click.ClickException as error:
        print_error(about_wrong_line(error))
        code = USAGE
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:  # farandole --help | head -1
        code = 141
    sys.exit(code or 0)
