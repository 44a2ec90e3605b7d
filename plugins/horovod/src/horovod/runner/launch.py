"""horovodrun: the options of Horovod 0.28.1 in, `farandole run` or mpirun out."""

from __future__ import annotations

import argparse
import inspect
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, NoReturn

import farandole
from farandole.launch import cli
from farandole.launch.messages import speak_as
from farandole.launch.shared_options import USAGE

from horovod import runner
from horovod._environment import obey, variables_with
from horovod.runner import _config, _errors, _mpi
from horovod.runner._options import HOROVODS_NAMES, OPTIONS, Option

_FRAMEWORKS = {"TensorFlow": "tensorflow", "PyTorch": "torch", "MXNet": "mxnet"}


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options that were typed, and the command; without a list those of this process."""
    parser = argparse.ArgumentParser(
        prog="horovodrun",
        description="Run a command as the ranks of one job.",
        usage="horovodrun -np N [options] command ...",
    )
    groups = {name: parser.add_mutually_exclusive_group() for name in ("hosts", "controller")}
    exclusive = {"hosts": groups["hosts"], "hostfile": groups["hosts"], "host_discovery_script": groups["hosts"]}
    exclusive |= dict.fromkeys(("gloo", "mpi", "jsrun"), groups["controller"])
    help_of = {name: str(getattr(each, "help", "")) for each in cli.run.params for name in each.opts}
    for option in OPTIONS:
        option.add_to(exclusive.get(option.key, parser), help_of)
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
    speak_as("horovodrun", _names_here())
    try:
        given = {**_config.options(given["config_file"]), **given} if "config_file" in given else given
        settings = _settings(given)
        command = _command_of_mpi(given, variables_with(settings)) if "mpi" in given else []
        obey(settings)
    except ValueError as error:  # of an option, a file or a variable of Horovod's
        _say(str(error))
        sys.exit(USAGE)
    for sentence in _without_effect(given):
        _say(sentence)
    if command:
        sys.stderr.flush()
        os.execv(command[0], command)
    cli.main(["run", *_args(given), "--", *given["command"]])


def _run(args: argparse.Namespace) -> list[Any] | None:
    """Run the command, or call the function `run_func`, of these options, for programs that call it themselves.

    Returns:
        The results of the function, rank 0 first.

    Raises:
        RuntimeError: a rank failed.
        ValueError: an option cannot be used.
    """
    given = {HOROVODS_NAMES.get(name, name): value for name, value in vars(args).items() if value not in (None, False)}
    if "run_func" in given:
        of_run = {"slots_per_host": "slots", "blacklist_cooldown_range": "cooldown_range", "mpi": "use_mpi"}
        named = {of_run.get(name, name): value for name, value in given.items()}
        known = inspect.signature(runner.run).parameters
        return runner.run(given["run_func"], **{name: value for name, value in named.items() if name in known})
    given = {**given, **{option.key: option.text_of(given[option.key]) for option, _ in _of(given) if option.metavar}}
    variables = variables_with(_settings(given))
    if "mpi" in given:
        command = _command_of_mpi(given, variables)
    else:
        command = [sys.executable, "-m", "farandole.launch", "run", *_args(given), "--", *given["command"]]
    code = subprocess.run(command, env=variables, check=False).returncode
    if code != 0:
        raise _errors.of_command(code)
    return None


def _names_here() -> dict[str, str]:
    """The words of `farandole run` -> those of horovodrun, where they differ."""
    names = {option.passed_as: max(option.names.split(), key=len) for option in reversed(OPTIONS) if option.passed_as}
    own = {word for option in OPTIONS for word in option.names.split()}
    return {"farandole run": "horovodrun", **{ours: here for ours, here in names.items() if ours not in own}}


def _command_of_mpi(given: dict[str, Any], variables: dict[str, str]) -> list[str]:
    if not given["command"]:
        raise _mpi.MpiError("say what to run: horovodrun --mpi -np 4 python train.py")
    passed_on = {option.key: max(option.names.split(), key=len) for option, _ in _of(given) if option.passed_as}
    return _mpi.command(given, passed_on, variables)


def _of(given: dict[str, Any]) -> list[tuple[Option, Any]]:
    return [(option, given[option.key]) for option in OPTIONS if option.key in given]


def _args(given: dict[str, Any]) -> list[str]:
    """The options for `farandole run`."""
    args: list[str] = []
    for option, value in _of(given):
        if option.passed_as:
            values = value if isinstance(value, list) else [value] if option.metavar else []
            args += [option.passed_as, *map(str, values)]
    return args


def _settings(given: dict[str, Any]) -> dict[str, str]:
    """The variables of Horovod's that its own horovodrun would set."""
    if "jsrun" in given:
        raise _mpi.MpiError("--jsrun is not supported: leave it out, and the ranks start on the hosts of LSF's job")
    settings: dict[str, str] = _mpi.settings(given) if "mpi" in given else {}
    for option, value in _of(given):
        if option.key == "fusion_threshold_mb":
            settings[option.setting] = _bytes(value)
        elif option.setting:
            settings[option.setting] = str(value) if option.metavar else option.value
    return settings


def _bytes(megabytes: str) -> str:
    return str(int(float(megabytes) * 2**20))


def _without_effect(given: dict[str, Any]) -> list[str]:
    """A sentence for each reason why options have no effect."""
    names: dict[str, list[str]] = {}
    for option, _ in _of(given):
        if option.ignored and not ("mpi" in given and option.key in _mpi.ARGUMENTS):
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
