"""Parts that the verbs of `farandole` share: options, the exit code of a wrong line, the form of a message."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from farandole.launch.messages import answer

T = TypeVar("T", bound=Callable[..., object])
USAGE = 2
_FILE = click.Path(path_type=Path)
CONTEXT = {"help_option_names": ["-h", "--help"]}


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from farandole.launch.version import own_version

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


_HOST_OPTIONS = (
    click.option("-H", "--hosts", metavar="HOST:SLOTS,...", help="Where to run: localhost:4 or h1:4,h2:4."),
    click.option("-hostfile", "--hostfile", type=_FILE, metavar="FILE", help="Where to run: lines such as h1 slots=4."),
    click.option("-p", "--ssh-port", type=Count(1, 65535), metavar="PORT", help="The port of ssh on other hosts."),
    click.option("-i", "--ssh-identity-file", type=_FILE, metavar="FILE", help="The key for ssh to other hosts."),
    click.option("--python", metavar="PATH", help="The Python of other hosts; by default as on this one."),
    click.option("--network-interfaces", metavar="NAME,...", help="Those that hosts use between them."),
)


def host_options(command: T) -> T:
    """The options that name hosts, and how they are reached."""
    for option in reversed(_HOST_OPTIONS):
        command = option(command)
    return command


_NODE_OPTIONS = (
    click.option("--nnodes", metavar="N", help="Number of nodes that each run this command, without ssh."),
    click.option("--node-rank", metavar="N", help="With --nnodes: this node's number, from 0."),
    click.option("--rendezvous", metavar="HOST:PORT", help="With --nnodes: where node 0 listens for the others."),
    click.option(
        "--key-file", type=_FILE, metavar="FILE", help="With --nnodes: at least 32 secret bytes, alike on all."
    ),
    click.option("--nproc-per-node", metavar="N", help="With --nnodes: ranks of this node (1); auto: as -np auto."),
)


def node_options(command: T) -> T:
    """The options of a job whose nodes start themselves."""
    for option in reversed(_NODE_OPTIONS):
        command = option(command)
    return command


_METRICS_OPTIONS = (
    click.option(
        "--metrics", type=Count(0, 65535), metavar="PORT", help="Serve OpenMetrics of this host's ranks; 0: any port."
    ),
    click.option("--metrics-address", metavar="ADDRESS", help="Of the host, for --metrics; 127.0.0.1 by default."),
    click.option("--metrics-key-file", type=_FILE, metavar="FILE", help="A key that readers of --metrics must know."),
)


def metrics_options(command: T) -> T:
    """The options of an endpoint for monitoring systems."""
    for option in reversed(_METRICS_OPTIONS):
        command = option(command)
    return command


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
