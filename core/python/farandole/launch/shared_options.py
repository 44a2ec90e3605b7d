"""Parts that the verbs of `farandole` share: options, the exit code of a wrong line, the form of a message."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from farandole.launch.messages import answer
from farandole.launch.spec import Count as SpecCount
from farandole.launch.spec import Leaf, leaves

T = TypeVar("T", bound=Callable[..., object])
USAGE = 2
CONTEXT = {"help_option_names": ["-h", "--help"]}


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from farandole.launch.environment import own_version

    click.echo(f"farandole {own_version()}")
    context.exit()


version_option = click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    allow_from_autoenv=False,
    callback=_print_version,
    help="Print the version.",
)


def _count(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """-np4 comes as the value p4 of -n."""
    return value[1:] if value is not None and value[:1] == "p" and value[1:].isdecimal() else value


class Count(click.IntRange):
    """A whole number, with words for what is none."""

    name = "whole number"


def num_proc_option(default: str | None, text: str) -> Callable[[T], T]:
    """The option -np, with its default and its text for --help."""
    names = "-n", "-np", "--num-proc", "num_proc"
    return click.option(*names, metavar="N", default=default, callback=_count, help=text)


_TYPES = {float: float, Path: click.Path(path_type=Path), str: str, SpecCount: str}


def options_of(*groups: type) -> Callable[[T], T]:
    """The options of these groups of a spec."""

    def add(command: T) -> T:
        for group in reversed(groups):
            for leaf in reversed(leaves(group)):
                command = _option(leaf)(command)
        return command

    return add


def _option(leaf: Leaf) -> Callable[[T], T]:
    if leaf.kind is bool:
        names = [f"{each}/--no-{each[2:]}" for each in leaf.names] if leaf.default else leaf.names
        return click.option(*names, leaf.name, is_flag=True, default=leaf.default, help=leaf.help)
    if leaf.name == "num_proc":
        return num_proc_option(leaf.default, leaf.help)
    several: dict[str, Any] = {}
    kind: Any
    if isinstance(leaf.kind, tuple) and leaf.kind[0] is str:
        kind, several = str, {"multiple": True}
    elif isinstance(leaf.kind, tuple):
        kind = click.Choice(leaf.kind) if isinstance(leaf.kind[0], str) else leaf.kind
    else:
        kind = Count(leaf.least, leaf.most) if leaf.kind is int else _TYPES[leaf.kind]
    default = leaf.default if isinstance(kind, click.Choice) else None
    metavar = leaf.metavar or None
    return click.option(*leaf.names, leaf.name, type=kind, default=default, metavar=metavar, help=leaf.help, **several)


def about_wrong_line(error: click.ClickException) -> str:
    """The sentence about a command line that click refuses: its own words, and the place of the right ones."""
    sentence = error.format_message()
    lacks = isinstance(error, click.NoSuchOption | click.MissingParameter) or sentence.startswith("No such command")
    if not lacks or sentence.endswith("?") or not isinstance(error, click.UsageError) or error.ctx is None:
        return sentence
    return f"{sentence.rstrip('.')}; {error.ctx.command_path} --help lists all."


def print_error(message: str) -> None:
    """One line on stderr."""
    print(answer(message), file=sys.stderr)
