"""The page of the command line, made of the options that click knows."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

INTRODUCTION = """# Command line

These are the texts of `farandole --help` and `farandole VERB --help`. [Launching](../guide/launching.md) explains them,
and [a file or the environment](../guide/launching.md#options-from-a-file-and-the-environment) can set the options.
"""


def page_text(root: click.Command) -> str:
    """The Markdown for a command and those below it."""
    return "\n".join([INTRODUCTION, *_command(root, click.Context(root, info_name=root.name), 2)])


def _command(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    yield f"{'#' * level} {context.command_path}\n"
    yield f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```\n"
    yield _prose(command.help or "")
    options = [each for each in command.get_params(context) if isinstance(each, click.Option) and not each.hidden]
    yield "| option | meaning |\n|---|---|"
    for option in options:
        yield f"| {_spelling(option, context)} | {_meaning(option, context)} |"
    yield ""
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        verb = command.get_command(context, name)
        if verb is not None:
            yield from _command(verb, click.Context(verb, info_name=name, parent=context), level + 1)


def _prose(text: str) -> str:
    """A help text; a part that click prints as it stands, since a backspace precedes it, becomes code."""
    blocks = inspect.cleandoc(text).split("\n\n")
    shown = [f"```\n{inspect.cleandoc(each[1:])}\n```" if each.startswith("\b") else each for each in blocks]
    return "\n\n".join(shown) + "\n"


def _spelling(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    return ", ".join(f"`{each.strip()}`" for each in re.split(r" ?[/,] (?=-)", record[0])) if record else ""


def _meaning(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    return (record[1] if record else "").replace("|", "\\|").replace("<", "&lt;")
