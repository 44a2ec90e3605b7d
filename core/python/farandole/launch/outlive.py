"""--outlive-launcher and --job-state: whether ranks stay when the launcher dies, and where the next one finds them."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from farandole.launch.engines import Engine
from farandole.launch.options import Elastic, OptionError, RunOptions

_MOST_SECONDS = 7 * 86400.0
_ID_BYTES = 4
_MOST_NAMED = 4


@dataclass(frozen=True)
class Outlive:
    """How a job outlives its launcher."""

    seconds: float  # that the agents wait for another launcher
    file: Path  # absolute, from which that one learns how to reach them
    is_in_runtime_folder: bool = False  # the user named none

    @property
    def remedy(self) -> str:
        """The words about a dead launcher: how long the ranks stay, and the next command."""
        return f"the ranks go on for {self.seconds:g} s; run farandole adopt {self.file}"


def outlive(
    options: RunOptions, elastic: Elastic | None, engine: Engine | None, calls: bool, base: Mapping[str, str]
) -> Outlive | None:
    """None without --outlive-launcher. Raises OptionError. `calls`: the ranks call a function of a program."""
    seconds = options.outlive_launcher
    if seconds is None:
        if options.job_state is not None:
            raise OptionError("--job-state names the file for another launcher: give --outlive-launcher SECONDS, too.")
        return None
    if not 0 < seconds <= _MOST_SECONDS:
        raise OptionError(f"--outlive-launcher must be seconds, more than 0 and at most a week, not {seconds:g}.")
    if elastic is None:
        raise OptionError(
            "--outlive-launcher is for elastic jobs, whose ranks can wait for a decision: give --min-np N, too."
        )
    if options.host_discovery_script is not None or options.host_discovery_service is not None:
        raise OptionError("--outlive-launcher is for the hosts of the start: name them with -H, not by host discovery.")
    if options.file is not None or calls:
        raise OptionError("--outlive-launcher is for one command, not for a job file or farandole.run in a program.")
    if engine is not None and engine.command is not None:
        raise OptionError(f"--outlive-launcher works with ssh, and {engine.program} ends its hosts with the launcher.")
    return Outlive(seconds, _file(options, base), options.job_state is None)


def _file(options: RunOptions, base: Mapping[str, str]) -> Path:
    if options.job_state is None:
        return runtime_folder(base) / f"job-{secrets.token_hex(_ID_BYTES)}.json"
    path = options.job_state.expanduser().absolute()
    if not path.parent.is_dir():
        raise OptionError(f"--job-state {options.job_state}: there is no folder {path.parent}.")
    if os.path.lexists(path):
        raise OptionError(f"--job-state {options.job_state} is there already; adopt its job, or remove the file.")
    return path


def runtime_folder(base: Mapping[str, str], make: bool = True) -> Path:
    """The folder for the files of jobs, which only this user can read. Raises OptionError."""
    given = base.get("XDG_RUNTIME_DIR", "")
    folder = Path(given) / "farandole" if os.path.isdir(given) else Path(f"/tmp/farandole-{os.getuid()}")
    try:
        if make:
            folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        if not make:
            return folder
        why = f"{folder} cannot be made ({error.strerror}); name another file with --job-state FILE."
        raise OptionError(f"--outlive-launcher: {why}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OptionError(f"{folder} is no folder of this user alone (mode 0700); name a file with --job-state FILE.")
    return folder


def find(base: Mapping[str, str]) -> Path:
    """The only file of a job in the folder for them. Raises OptionError."""
    folder = runtime_folder(base, make=False)
    found = sorted(folder.glob("job-*.json")) if folder.is_dir() else []
    if not found:
        raise OptionError(f"no job has left a file in {folder}; name the one that --job-state named.")
    if len(found) > 1:
        names = ", ".join(str(each) for each in found[:_MOST_NAMED])
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        raise OptionError(f"{len(found)} jobs have left files: name one of {names}{more}.")
    return found[0]
