"""The command `farandole`: options in, one call, an exit code out. Everything else is imported when it is needed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NoReturn, TypeVar

import click

T = TypeVar("T", bound=Callable[..., object])
USAGE = 2
_CONTEXT = {"help_option_names": ["-h", "--help"]}


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from importlib import metadata

    try:
        version = metadata.version("farandole")
    except metadata.PackageNotFoundError:
        version = "(run from its source tree)"
    click.echo(f"farandole {version}")
    context.exit()


_version_option = click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)


@click.group(name="farandole", invoke_without_command=True, context_settings=_CONTEXT)
@_version_option
@click.pass_context
def farandole(context: click.Context) -> None:
    """Distributed deep-learning training."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _count(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """-np4 comes as the value p4 of -n."""
    return value[1:] if value is not None and value[:1] == "p" and value[1:].isdecimal() else value


def _num_proc_option(default: str | None, text: str) -> Callable[[T], T]:
    names = "-n", "-np", "--num-proc", "num_proc"
    return click.option(*names, metavar="N", default=default, callback=_count, help=text)


class _Run(click.Command):
    """Answers horovodrun's options; says where -np lacks its number rather than blame the command's own options."""

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
                job.parse_count(value, "-np")
            except job.JobError as error:
                raise click.UsageError(str(error)) from error
            return


@farandole.command(
    cls=_Run,
    context_settings={**_CONTEXT, "allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
    short_help="Run a command as the ranks of one job.",
)
@_num_proc_option(None, "Number of ranks; by default all slots of -H.")
@click.option("-H", "--hosts", metavar="HOST:SLOTS,...", help="Where to run; this release: localhost only.")
@click.option("-m", "module", is_flag=True, help="COMMAND is a Python module, as in python -m.")
@click.option("--prefix/--no-prefix", default=True, help="Begin each line with [rank] (default).")
@click.option("--timestamp", is_flag=True, help="Begin each line with the time of day.")
@click.option("--output-dir", type=click.Path(path_type=Path), metavar="DIR", help="Also write DIR/rank.N.log.")
@click.option("--start-timeout", type=float, metavar="SECONDS", help="How long the ranks wait for each other at first.")
@click.option(
    "--backend",
    metavar="NAME,...",
    help="Who performs operations, as FARANDOLE_BACKEND: the first that supports one does.",
)
@click.option(
    "--timeline-filename",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Record what operations do: FILE with .rankN before its suffix; see `farandole timeline`.",
)
@click.option("--timeline-mark-cycles", is_flag=True, help="Also mark there what was agreed on together.")
@click.option("--verbose", is_flag=True, help="Say what is started, and when each rank ends.")
@_version_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [ARGS]...")
def run(
    num_proc: str | None,
    hosts: str | None,
    module: bool,
    prefix: bool,
    timestamp: bool,
    output_dir: Path | None,
    start_timeout: float | None,
    backend: str | None,
    timeline_filename: Path | None,
    timeline_mark_cycles: bool,
    verbose: bool,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND as N ranks that train together.

    \b
        farandole run -np 4 python train.py --epochs 3
        farandole run -np 4 train.py
        farandole run -np 4 -m package.train

    Ends with the exit code of the rank that failed first, or 0.
    """  # noqa: D301  (click wants the character)
    from farandole.launch import environment, gpus, horovod, job, local
    from farandole.launch.doctor.settings import likely_slips
    from farandole.launch.relay import OutputOptions
    from farandole.launch.run import Job, run_job

    base = environment.inherited()
    try:
        settings = environment.settings(base)
        placements = job.plan(num_proc, hosts, environment.local_names())
        if start_timeout is not None and not 0 < start_timeout < float("inf"):
            raise click.UsageError(f"--start-timeout must be a positive number of seconds, not {start_timeout:g}.")
        if backend is not None:
            base["FARANDOLE_BACKEND"] = backend
        environment.check_backends(base)
        if timeline_filename is not None:
            if timeline_filename.is_dir():
                raise click.UsageError(f"--timeline-filename {timeline_filename} is a folder; name a file in it.")
            if not timeline_filename.absolute().parent.is_dir():
                missing = timeline_filename.absolute().parent
                raise click.UsageError(f"--timeline-filename {timeline_filename}: there is no folder {missing}.")
            base |= environment.for_timeline(timeline_filename.absolute(), timeline_mark_cycles)
        if not command:
            raise click.UsageError("say what to run: farandole run -np 4 python train.py")
        words = local.resolve_command(command, module, base.get("PATH"))
    except (job.JobError, environment.SettingError) as error:
        raise click.UsageError(str(error)) from error
    except local.CommandError as error:
        _print_error(str(error))
        return error.exit_code
    hints = [horovod.about_settings(base), gpus.sharing(base, placements[0].local_size)]
    for sentence in [*likely_slips(base), *hints]:
        if sentence:
            _print_error(sentence)
    output = OutputOptions(
        prefix=prefix,
        timestamp=timestamp,
        directory=output_dir,
        no_color=settings.no_color,
        force_color=settings.force_color,
        dumb_terminal=settings.dumb_terminal,
        verbose=verbose,
    )
    return run_job(Job(words, placements, base, settings.grace_s, output, start_timeout))


@farandole.command(context_settings=_CONTEXT, short_help="Measure collectives on this machine.")
@_num_proc_option("2", "Number of ranks; 2 by default.")
@click.option("--sizes", metavar="LIST", help="Bytes, with K, M or G: 4,64K,1M (default: 4 to 64M).")
@click.option(
    "--operation", type=click.Choice(["allreduce", "allgather", "broadcast"]), default="allreduce", show_default=True
)
@click.option("--seconds", type=float, metavar="S", default=1.0, help="About how long each size takes; 1 by default.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), metavar="FILE", help="Also write the rows there.")
def bench(num_proc: str, sizes: str | None, operation: str, seconds: float, json_path: Path | None) -> int:
    """Measure a collective on numpy arrays: how long it takes, and how many bytes a second that is.

    \b
        farandole bench -np 4 --sizes 4,64K,16M
        farandole bench --operation allgather --json rows.json
    """  # noqa: D301  (click wants the character)
    from farandole.launch import environment, job, measure
    from farandole.launch.relay import OutputOptions
    from farandole.launch.run import Job, run_job

    if importlib.util.find_spec("numpy") is None:
        raise click.UsageError(f"bench measures with numpy, which is not there: {sys.executable} -m pip install numpy")
    base = environment.inherited()
    try:
        settings = environment.settings(base)
        environment.check_backends(base)
        placements = job.plan(num_proc, None, environment.local_names())
        byte_sizes = measure.parse_sizes(measure.DEFAULT_SIZES if sizes is None else sizes)
    except (job.JobError, environment.SettingError) as error:
        raise click.UsageError(str(error)) from error
    if not 0 < seconds <= 3600:
        raise click.UsageError(f"--seconds must be above 0 and at most 3600, not {seconds:g}.")
    if json_path is not None and not json_path.absolute().parent.is_dir():
        raise click.UsageError(f"--json {json_path}: there is no folder {json_path.absolute().parent}.")
    words = measure.command(operation, byte_sizes, seconds, None if json_path is None else str(json_path))
    return run_job(Job(words, placements, base, settings.grace_s, OutputOptions(prefix=False)))


@farandole.command(context_settings=_CONTEXT, short_help="Look for what would go wrong in a job on this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    default=60.0,
    metavar="SECONDS",
    help="How long each trial of the compiled core may take (60).",
)
def doctor(as_json: bool, limit_s: float) -> int:
    """Check this machine and installation: one line for each thing, with what to do where it is not OK.

    Starts ranks of its own for a moment. Ends with 1 if something is FAIL, else 0.
    """
    from farandole.launch import environment
    from farandole.launch.doctor import examine, report

    findings = examine.examine(environment.inherited(), limit_s)
    click.echo(report.as_json(findings) if as_json else report.as_text(findings))
    return report.exit_code(findings)


@farandole.command(context_settings=_CONTEXT, short_help="Make one trace of the traces of all ranks.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Where to; by default beside them."
)
def timeline(files: tuple[Path, ...], output: Path | None) -> int:
    """Merge what `farandole run --timeline-filename FILE` has recorded.

    FILE is that name, or the files of the ranks. https://ui.perfetto.dev opens the result.

    \b
        farandole run -np 4 --timeline-filename trace.json train.py
        farandole timeline trace.json
    """  # noqa: D301  (click wants the character)
    from farandole.launch import timeline as traces

    try:
        found, about_others = traces.of_one_run(traces.find(files))
        target = output or traces.default_output(found)
        if target in found:
            raise traces.TimelineError(f"--output {target} is one of the files to be merged")
        count = traces.merge_into(target, found)
    except (traces.TimelineError, OSError) as error:
        _print_error(str(error))
        return 1
    if about_others:
        _print_error(about_others)
    click.echo(f"{target}: {count} events of {len(found)} ranks. Open it in https://ui.perfetto.dev")
    return 0


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: 2 for what was typed wrongly, else as the verb decides."""
    if sys.platform != "linux":
        _print_error(f"Farandole runs on Linux; {sys.platform} is not supported.")
        sys.exit(USAGE)
    try:
        code = farandole.main(arguments, prog_name="farandole", standalone_mode=False)
    except click.ClickException as error:
        _print_error(error.format_message())
        code = USAGE
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:  # farandole --help | head -1
        code = 141
    sys.exit(code or 0)


def _print_error(message: str) -> None:
    print(f"farandole: {' '.join(message.split())}", file=sys.stderr)
