"""Files of --config-file -> options of `farandole run` and settings. Pure, but for `read`.

TOML has the options in its table [run]; YAML, a file with the suffix .yaml or .yml, is that of horovodrun:

    [run]                               timeline:
    num-proc = 4                          filename: trace.json
    hosts = "h1:2,h2:2"                 params:
    env = ["NAME=VALUE"]                  fusion_threshold_mb: 32
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farandole.launch import files
from farandole.launch.messages import did_you_mean, shown
from farandole.launch.spec import Leaf, SpecError

MAX_FILE_BYTES = 1 << 20  # a larger file is a device or a wrong file
_NEVER_WARN = "31536000"  # seconds: a year
_YAML = {".yaml", ".yml"}

_BOOL, _NUMBER, _LEVEL = Leaf("", bool), Leaf("", float, least=0), Leaf("", ("error", "warning", "info", "debug"))

# key of horovodrun's file -> the option with its meaning
_HOROVOD_OPTIONS = {
    "timeline.filename": "timeline-filename",
    "timeline.mark_cycles": "timeline-mark-cycles",
    "logging.with_timestamp": "timestamp",
    "library_options.gloo_timeout_seconds": "start-timeout",
}
# key of horovodrun's file -> the variable with its meaning, the type of its value, and what makes the variable's value
_HOROVOD_SETTINGS: dict[str, tuple[str, Leaf, Callable[[Any], str]]] = {
    "params.fusion_threshold_mb": ("FARANDOLE_FUSION_THRESHOLD", _NUMBER, lambda value: str(int(value * 2**20))),
    "stall_check.enabled": ("FARANDOLE_WARN_AFTER", _BOOL, lambda _: ""),
    "stall_check.warning_time_seconds": ("FARANDOLE_WARN_AFTER", _NUMBER, "{:.12g}".format),
    "stall_check.shutdown_time_seconds": ("FARANDOLE_TIMEOUT", _NUMBER, "{:.12g}".format),
    "logging.level": ("FARANDOLE_LOG_LEVEL", _LEVEL, str),
}
_WITHOUT_EFFECT = frozenset(
    {
        "controller",
        "logging.hide_timestamp",
        *(f"params.{name}" for name in ("cycle_time_ms", "cache_capacity", "torus_allreduce")),
        *(f"params.hierarchical_{name}" for name in ("allreduce", "allgather")),
        *(f"library_options.{name}" for name in ("mpi_threads_disable", "num_nccl_streams", "thread_affinity")),
        *(f"autotune.{name}" for name in ("enabled", "log_file", "warmup_samples", "steps_per_sample")),
        *(f"autotune.{name}" for name in ("bayes_opt_max_samples", "gaussian_process_noise")),
    }
)
_LEVELS = {"trace": "debug", "fatal": "error"}  # where the names differ


@dataclass(frozen=True)
class Config:
    """The content of a file."""

    options: dict[str, Any] = field(default_factory=dict)  # long option without dashes in front -> value
    settings: dict[str, str] = field(default_factory=dict)  # FARANDOLE_ variable -> value
    ignored: tuple[str, ...] = ()  # keys that mean something to Horovod only


def read(path: Path, known: Mapping[str, Leaf]) -> Config:
    """Return the file's content. `known`: the leaf of each long option, without leading dashes. Raises SpecError."""
    where = f"--config-file {path}"
    text = files.read_text(path, where, "file of options", MAX_FILE_BYTES)
    return _of_yaml(text, where, known) if path.suffix.lower() in _YAML else _of_toml(text, where, known)


def _of_toml(text: str, where: str, known: Mapping[str, Leaf]) -> Config:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for a number of thousands of digits
        raise SpecError(f"{where} is not TOML: {str(error) or 'it is nested too deeply'}.") from error
    options = tables.pop("run", {})
    for key in tables:
        raise SpecError(f"{where} has {shown(key)} outside its table; write options below a line [run].")
    if not isinstance(options, dict):
        raise SpecError(f"{where} has run as a value; write options below a line [run].")
    for key, value in options.items():
        if key not in known:
            raise _unknown(key, where, known)
        _check(key, value, known[key], where)
    return Config(options)


def _of_yaml(text: str, where: str, known: Mapping[str, Leaf]) -> Config:
    content = files.parse_yaml(where, lambda yaml: yaml.safe_load(text), ", or write TOML")
    if not isinstance(content, dict):
        raise SpecError(f"{where} must have keys of horovodrun, such as params: and timeline:.")
    return _of_horovod(content, where, known)


def _of_horovod(content: Mapping[Any, Any], where: str, known: Mapping[str, Leaf]) -> Config:
    options: dict[str, Any] = {}
    settings: dict[str, str] = {}
    ignored = []
    for key, value in _flat(content):
        if option := _HOROVOD_OPTIONS.get(key):
            if value is not None:
                _check(key, value, known[option], where)
                options[option] = value
        elif setting := _HOROVOD_SETTINGS.get(key):
            variable, leaf, text_of = setting
            if value is not None:
                value = _LEVELS.get(str(value).lower(), str(value).lower()) if leaf is _LEVEL else value
                _check(key, value, leaf, where)
                settings |= {variable: text} if (text := text_of(value)) else {}
        elif key in _WITHOUT_EFFECT:
            ignored.append(key)
        else:
            raise _unknown(key, where, [*_HOROVOD_OPTIONS, *_HOROVOD_SETTINGS, *sorted(_WITHOUT_EFFECT)])
    if (content.get("stall_check") or {}).get("enabled") is False:  # which counts more than a time
        settings["FARANDOLE_WARN_AFTER"] = _NEVER_WARN
    return Config(options, settings, tuple(ignored))


def _flat(content: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{inner}", each) for inner, each in value.items())
        else:
            yield str(key), value


def _unknown(key: object, where: str, known: Any) -> SpecError:
    near = did_you_mean(str(key), known) or f"; known are {', '.join(known)}."
    return SpecError(f"{where} has {shown(key)}, which is no option{near}")


def _check(key: str, value: Any, leaf: Leaf, where: str) -> None:
    """Raise SpecError for a value of another type."""
    try:
        leaf.fit(value)
    except SpecError:
        raise SpecError(f"{where}: {key} must be {leaf.wanted}, not {shown(value)}.") from None
