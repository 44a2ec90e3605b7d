"""horovodrun: the options of Horovod 0.28.1 in, `farandole run` out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, NoReturn

import farandole
from farandole.launch.cli import main as farandole_command
from farandole.launch.shared_options import USAGE

from horovod._environment import obey
from horovod.runner import _config
from horovod.runner._options import OPTIONS, Option

_FRAMEWORKS = {"TensorFlow": "tensorflow", "PyTorch": "torch", "MXNet": "mxnet"}


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options that were typed, and the command; without a list those of this process."""
    parser = argparse.ArgumentParser(
        prog="horovodrun",
        description="Runs a command as the ranks of one job, by farandole run.",
        usage="horovodrun -np N [options] command ...",
    )
    groups = {name: parser.add_mutually_exclusive_group() for name in ("hosts", "controller")}
    exclusive = {"hosts": groups["hosts"], "hostfile": groups["hosts"], "host_discovery_script": groups["hosts"]}
    exclusive |= dict.fromkeys(("gloo", "mpi", "jsrun"), groups["controller"])
    for option in OPTIONS:
        option.add_to(exclusive.get(option.key, parser))
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what each rank runs")
    return parser.parse_args(arguments)


def run_commandline(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit, with the exit code of `farandole run`."""
    given = vars(parse_args(arguments))
    if "version" in given:
        from horovod import __version__

        print(__version__)
        sys.exit(0)
    if "check_build" in given:
        print(what_works())
        sys.exit(0)
    try:
        given = {**_config.options(given["config_file"]), **given} if "config_file" in given else given
        settings = _settings(given)
        words = _words(given)
        obey(settings)
    except ValueError as error:  # of an option, a file or a variable of Horovod's
        _say(str(error))
        sys.exit(USAGE)
    for sentence in _without_effect(given):
        _say(sentence)
    farandole_command(["run", *words, "--", *given["command"]])


def _of(given: dict[str, Any]) -> list[tuple[Option, Any]]:
    return [(option, given[option.key]) for option in OPTIONS if option.key in given]


def _words(given: dict[str, Any]) -> list[str]:
    """The options for `farandole run`."""
    words: list[str] = []
    for option, value in _of(given):
        if option.passed_as:
            values = value if isinstance(value, list) else [value] if option.metavar else []
            words += [option.passed_as, *map(str, values)]
    return words


def _settings(given: dict[str, Any]) -> dict[str, str]:
    """The variables of Horovod's that its own horovodrun would set."""
    settings: dict[str, str] = {}
    for option, value in _of(given):
        if option.key == "fusion_threshold_mb":
            settings[option.setting] = _bytes(value)
        elif option.setting:
            settings[option.setting] = str(value) if option.metavar else option.value
    return settings


def _bytes(megabytes: str) -> str:
    try:
        return str(int(float(megabytes) * 2**20))
    except (ValueError, OverflowError):
        raise _config.FileError(f"--fusion-threshold-mb must be a number of MB, not {megabytes!r}") from None


def _without_effect(given: dict[str, Any]) -> list[str]:
    """A sentence for each reason why options have no effect."""
    names: dict[str, list[str]] = {}
    for option, _ in _of(given):
        if option.ignored:
            names.setdefault(option.ignored, []).append(max(option.names.split(), key=len))
    return [f"no effect: {', '.join(found)} ({reason})" for reason, found in names.items()]


def what_works() -> str:
    """The text of --check-build: the frameworks and libraries, with [X] where they can be used."""
    rows = {
        "Available Frameworks": {
            name: bool(find_spec(module) and find_spec(f"farandole_{module}")) for name, module in _FRAMEWORKS.items()
        },
        "Available Controllers": {"MPI": farandole.mpi_built(), "Gloo": farandole.gloo_built()},
        "Available Tensor Operations": {
            "NCCL": bool(farandole.nccl_built()),
            "DDL": farandole.ddl_built(),
            "CCL": farandole.ccl_built(),
            "MPI": farandole.mpi_built(),
            "Gloo": farandole.gloo_built(),
        },
    }
    lines = [f"farandole {farandole.__version__} as horovod; farandole doctor says more"]
    for title, found in rows.items():
        lines += ["", f"{title}:", *(f"    [{'X' if there else ' '}] {name}" for name, there in found.items())]
    return "\n".join(lines)


def _say(sentence: str) -> None:
    print(f"horovodrun: {sentence}", file=sys.stderr)


if __name__ == "__main__":
    run_commandline()
