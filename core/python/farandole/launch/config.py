"""Values of options: where each comes from. Click decides; this module gives it the file and shows its decisions.

Precedence: command line, environment (FARANDOLE_RUN_<OPTION>), file of --config-file, default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from farandole.launch import config_file, environment
from farandole.launch.config_file import Config
from farandole.launch.messages import did_you_mean, table
from farandole.launch.spec import Leaf, SpecError, leaves_by_name

PREFIX = "FARANDOLE_RUN"
_META = "farandole.launch.config"  # where the context keeps the file's content
_OUTSIDE_FILES = {"version", "config-file", "help"}
# option -> the setting in the environment that counts more than the option in a file
_SETTINGS = {
    "backend": "FARANDOLE_BACKEND",
    "start-timeout": "FARANDOLE_START_TIMEOUT",
    "timeline-filename": "FARANDOLE_TIMELINE",
    "timeline-mark-cycles": "FARANDOLE_TIMELINE",
}
_SOURCES = {
    ParameterSource.COMMANDLINE: "command line",
    ParameterSource.ENVIRONMENT: "environment",
    ParameterSource.DEFAULT_MAP: "file",
}
_ORDER = list(_SOURCES)


def load(context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """The callback of --config-file, which click calls before it decides about other options."""
    if path is None or context.resilient_parsing:
        return path
    options = dict(options_of(context.command))
    try:
        content = config_file.read(path, {name: _leaf(str(option.name)) for name, option in options.items()})
    except SpecError as error:
        raise click.UsageError(str(error)) from error
    given = environment.inherited()
    counting = {name: value for name, value in content.options.items() if not given.get(_SETTINGS.get(name, ""))}
    context.default_map = {str(options[name].name): value for name, value in counting.items()}
    context.meta[_META] = content
    return path


def options_of(command: click.Command) -> Iterator[tuple[str, click.Option]]:
    """Yield the long name without dashes, and the option, for each option that a file may contain."""
    for option in command.params:
        names = [each for each in option.opts if each.startswith("--")]
        if isinstance(option, click.Option) and names and (name := names[0].lstrip("-")) not in _OUTSIDE_FILES:
            yield name, option


def _leaf(name: str) -> Leaf:
    """The leaf of an option; a flag of the command alone has none."""
    return leaves_by_name()[name][1] if name in leaves_by_name() else Leaf(name, bool)


def of_file(context: click.Context) -> Config:
    """Return the content of the file given by --config-file; empty without one."""
    content: Config = context.meta.get(_META, Config())
    return content


def with_settings(context: click.Context, base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment plus those settings of the file that the environment lacks."""
    settings = {name: value for name, value in of_file(context).settings.items() if not base.get(name)}
    return {**base, **settings}


def less_preferred(context: click.Context, first: str, second: str) -> str:
    """Return which of two options has the weaker source. Raises UsageError if both have the same source."""
    sources = [context.get_parameter_source(name) for name in (first, second)]
    order = [_ORDER.index(source) if source in _ORDER else len(_ORDER) for source in sources]
    if order[0] == order[1] < len(_ORDER):
        raise click.UsageError(f"give one of --{first} and --{second}: both say where the ranks run.")
    return second if order[0] <= order[1] else first


def unknown_variables(command: click.Command, base: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable FARANDOLE_RUN_... that matches no option."""
    options = [option for option in command.params if isinstance(option, click.Option) and option.allow_from_autoenv]
    known = {str(option.name).upper() for option in options}
    names = sorted(name.removeprefix(f"{PREFIX}_") for name in base if name.startswith(f"{PREFIX}_"))
    text = "is set, but `farandole run` has no such option"
    return [
        f"{PREFIX}_{name} {text}{did_you_mean(name, known, f'{PREFIX}_') or '.'}" for name in names if name not in known
    ]


def report(context: click.Context, base: Mapping[str, str]) -> str:
    """Return the text of --show-config: each option's value and source, then the settings of the file."""
    rows = [("option", "value", "source")]
    for option in context.command.params:
        if isinstance(option, click.Option) and option.expose_value and option.name != "show_config":
            name = str(option.name)
            value = context.params.get(name)
            source = context.get_parameter_source(name)
            rows.append((_long(option), _text(name, value), _source(context, name, source)))
    for name, value in of_file(context).settings.items():
        rows.append((name, base[name], _file(context) if base[name] == value else "environment"))
    return table(rows)


def _long(option: click.Option) -> str:
    return next((each for each in option.opts if each.startswith("--")), option.opts[0])


def _text(name: str, value: Any) -> str:
    if value is None or value == ():
        return "-"
    if name == "env":  # whose values may be secrets
        return " ".join(each.partition("=")[0] for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _source(context: click.Context, name: str, source: ParameterSource | None) -> str:
    if source is ParameterSource.DEFAULT_MAP:
        return _file(context)
    origin = _SOURCES.get(source, "default") if source else "default"
    return f"{origin} ({PREFIX}_{name.upper()})" if source is ParameterSource.ENVIRONMENT else origin


def _file(context: click.Context) -> str:
    return f"file {context.params.get('config_file')}"
