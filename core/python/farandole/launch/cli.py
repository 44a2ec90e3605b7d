"""The command `farandole`: options in, one call, an exit code out. Everything else is imported when it is needed."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from farandole.launch.shared_options import CONTEXT, USAGE, about_wrong_line, options_of, print_error, version_option
from farandole.launch.spec import JobSpec, SpecError, groups, leaves
from farandole.launch.verbs import bench, doctor, inspect, k8s, live
from farandole.observe.trace_verbs import report, timeline

if TYPE_CHECKING:
    from farandole.launch.plan import Job


@click.group(name="farandole", invoke_without_command=True, context_settings=CONTEXT)
@version_option
@click.pass_context
def farandole(context: click.Context) -> None:
    """Distributed deep-learning training."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


class _Run(click.Command):
    """Says where -np lacks its number rather than blame the command's own options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        titles = {leaf.name: (group.__doc__ or "") for group in groups().values() for leaf in leaves(group)}
        sections: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (row := option.get_help_record(ctx)) is not None:
                sections.setdefault(titles.get(str(option.name), "This command"), []).append(row)
        for title, rows in sections.items():
            with formatter.section(title.rstrip(".")):
                formatter.write_dl(rows)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.allow_from_autoenv = False  # click 8.1 would read FARANDOLE_RUN_HELP
        return option

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption:
            _check_count(typed)
            raise


def _check_count(arguments: list[str]) -> None:
    from farandole.launch import placement

    for option, value in pairwise(arguments):
        if option in ("-n", "-np", "--num-proc"):
            try:
                placement.parse_count("1" if value == "auto" else value, "-np")
            except SpecError as error:
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
@options_of(*groups().values())
@click.option(
    "--config-file",
    type=click.Path(path_type=Path),
    is_eager=True,
    callback=_load_config,
    metavar="FILE",
    help="Read options from TOML, or from horovodrun's YAML; those that are typed come first.",
)
@click.option("--dry-run", is_flag=True, help="Print where each rank would run, and start nothing.")
@click.option("--show-config", is_flag=True, help="Print each option's value and its source, and start nothing.")
@version_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [ARGS]...")
@click.pass_context
def run(
    context: click.Context,
    /,
    command: tuple[str, ...],
    config_file: Path | None,
    dry_run: bool,
    show_config: bool,
    **given: Any,
) -> int:
    """Run COMMAND as N ranks that train together.

    \b
        farandole run -np 4 python train.py --epochs 3
        farandole run -np 4 train.py
        farandole run -np 4 -m package.train

    Ends with the exit code of the rank that failed first, or 0.
    Each option may stand in the environment, too, as FARANDOLE_RUN_NUM_PROC for --num-proc.
    """  # noqa: D301  (click wants the character)
    from farandole.launch import config, environment
    from farandole.launch.job_runner import run_job
    from farandole.launch.plan import plan

    base = config.with_settings(context, environment.inherited())
    if show_config:
        click.echo(config.report(context, base))
        return 0
    if given["hosts"] is not None and given["hostfile"] is not None:
        del given[config.less_preferred(context, "hosts", "hostfile")]
    try:
        planned = plan(JobSpec.of(command, **given), base, print_error, is_preview=dry_run)
    except SpecError as error:
        print_error(str(error))
        return error.exit_code
    for sentence in planned.notes:
        print_error(sentence)
    if dry_run:
        click.echo(planned.preview())
        return 0
    for sentence in _hints(context, planned):
        print_error(sentence)
    return run_job(planned)


def _hints(context: click.Context, planned: Job) -> list[str]:
    """Sentences about variables and options that do not do what they seem to."""
    from farandole.launch import config
    from farandole.launch.plan import hints

    ignored = config.of_file(context).ignored
    message = [f"no effect here: {', '.join(ignored)} of --config-file; there is nothing to set."] if ignored else []
    return [*config.unknown_variables(context.command, planned.base), *hints(planned), *message]


for _verb in (bench, doctor, inspect, k8s, live, report, timeline):
    farandole.add_command(_verb)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: 2 for what was typed wrongly, else as the verb decides."""
    if sys.platform != "linux":
        print_error(f"Farandole runs on Linux; {sys.platform} is not supported.")
        sys.exit(USAGE)
    try:
        code = farandole.main(arguments, prog_name="farandole", standalone_mode=False)
    except click.ClickException as error:
        print_error(about_wrong_line(error))
        code = USAGE
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:  # farandole --help | head -1
        code = 141
    sys.exit(code or 0)
