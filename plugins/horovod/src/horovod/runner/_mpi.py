"""`horovodrun --mpi`: the command line of mpirun, by Open MPI or by the MPIs with Hydra (MPICH, Intel MPI).

The ranks have that MPI's variables, which programs look for, and Farandole finds its ranks by them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from farandole.launch import environment
from farandole.launch.hosts import is_local, parse_hosts, read_hostfile

_EXPORTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BINDING = "--bind-to none --map-by slot"
ARGUMENTS = {"mpi_args", "binding_args"}  # keys of options that mpirun gets as they are
_LIMIT_S = 30.0
# What both have a word for, besides the command and the settings.
_UNDERSTOOD = {"num_proc", "hosts", "hostfile", "output_filename", "network_interface", "network_interfaces"}
_UNDERSTOOD |= {"ssh_port", "ssh_identity_file", "verbose", "start_timeout", "timeline_filename"}
_UNDERSTOOD |= {"timeline_mark_cycles"}


class MpiError(ValueError):
    """The ranks cannot be started by mpirun; the message is one sentence for the user."""


def command(given: Mapping[str, Any], passed_on: Mapping[str, str], variables: Mapping[str, str]) -> list[str]:
    """The command line of mpirun.

    Args:
        given: the options as `parse_args` has them.
        passed_on: the names as typed of those that become options of `farandole run`, by their keys.
        variables: of the ranks.
    """
    for key, name in passed_on.items():
        if key not in _UNDERSTOOD:
            raise MpiError(f"{name} cannot be beside --mpi: only ranks that horovodrun starts itself have it")
    program = shutil.which("mpirun", path=variables.get("PATH"))
    if program is None:
        raise MpiError(
            "--mpi starts the ranks by mpirun, and there is none in PATH: install an MPI, or leave out --mpi, since "
            "ranks need none"
        )
    hosts = _hosts(given)
    ranks = given.get("num_proc") or str(sum(hosts.values()))
    if not ranks.isdecimal() or ranks == "0":
        raise MpiError("say with -np how many ranks mpirun is to start")
    args = _of_open_mpi if _is_open_mpi(program) else _of_hydra
    args_of_user = shlex.split(given.get("mpi_args", ""))
    return [program, "-np", ranks, *args(given, hosts, ranks, variables), *args_of_user, *given["command"]]


def settings(given: Mapping[str, Any]) -> dict[str, str]:
    """Horovod's variables for the options that `farandole run` would have taken."""
    found = {"HOROVOD_START_TIMEOUT": given.get("start_timeout"), "HOROVOD_TIMELINE": given.get("timeline_filename")}
    found |= {"HOROVOD_TIMELINE_MARK_CYCLES": "1" if given.get("timeline_mark_cycles") else None}
    return {name: value for name, value in found.items() if value is not None}


def _hosts(given: Mapping[str, Any]) -> dict[str, int]:
    if "hosts" in given:
        listed = parse_hosts(given["hosts"])
    elif "hostfile" in given:
        listed = read_hostfile(Path(given["hostfile"]))
    else:
        return {}
    return {each.host: each.count for each in listed.slots}


def _is_open_mpi(program: str) -> bool:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MpiError(f"{program} --version cannot be run: {error}") from None
    text = done.stdout + done.stderr
    if "Open MPI" in text or "OpenRTE" in text or "PRTE" in text.upper():
        return True
    if "HYDRA" in text.upper() or "Intel" in text:
        return False
    raise MpiError(f"{program} is neither Open MPI's nor Hydra's (MPICH, Intel MPI), by what its --version says")


def _list(hosts: Mapping[str, int]) -> str:
    return ",".join(f"{host}:{count}" for host, count in hosts.items())


def _interfaces(given: Mapping[str, Any]) -> str:
    return str(given.get("network_interfaces") or given.get("network_interface") or "")


def _of_open_mpi(
    given: Mapping[str, Any], hosts: Mapping[str, int], ranks: str, variables: Mapping[str, str]
) -> list[str]:
    args = ["--allow-run-as-root", "--tag-output", "-H", _list(hosts) or f"localhost:{ranks}"]
    args += shlex.split(given.get("binding_args") or _BINDING)
    if "output_filename" in given:
        args += ["--output-filename", given["output_filename"]]
    if interfaces := _interfaces(given):
        args += ["--mca", "btl_tcp_if_include", interfaces, "--mca", "oob_tcp_if_include", interfaces]
    ssh = [*(["-p", given["ssh_port"]] if "ssh_port" in given else [])]
    ssh += ["-i", given["ssh_identity_file"]] if "ssh_identity_file" in given else []
    args += ["--mca", "plm_rsh_args", shlex.join(ssh)] if ssh else []
    here = environment.local_names()
    if not all(is_local(host, here) for host in hosts):  # else ranks inherit all
        names = filter(_EXPORTED.fullmatch, environment.for_other_hosts(variables, {}))
        args += [word for name in sorted(names) for word in ("-x", name)]
    return args


def _of_hydra(
    given: Mapping[str, Any], hosts: Mapping[str, int], ranks: str, variables: Mapping[str, str]
) -> list[str]:
    for key, name in (("ssh_port", "--ssh-port"), ("ssh_identity_file", "--ssh-identity-file")):
        if key in given:
            raise MpiError(f"{name} has no counterpart in this mpirun: write it into the settings of ssh")
    args = ["-prepend-rank", *(["-hosts", _list(hosts)] if hosts else [])]
    args += shlex.split(given.get("binding_args", ""))
    if "output_filename" in given:
        args += ["-outfile-pattern", os.path.join(given["output_filename"], "rank.%r.log")]
    return [*args, *(["-iface", interfaces] if (interfaces := _interfaces(given)) else [])]
