"""Reads the launcher's environment, as its only file that does so, and makes the environment of each rank.

A rank finds (docs/guide/launching.md tells users the same):

    FARANDOLE_RANK _SIZE _LOCAL_RANK _LOCAL_SIZE _CROSS_RANK _CROSS_SIZE     its place
    FARANDOLE_STORE      unix:<abstract socket name>, or tcp:<host>:<port> with several hosts, bound by rank 0
    FARANDOLE_ADDRESS    with several hosts: where other hosts reach this rank
    FARANDOLE_KEY_FILE   path to read the job's 32 secret bytes from
    HOROVOD_RANK ...       the same place for programs written for Horovod, see `_start/horovod_names.py`
    FARANDOLE_JOINS        its number, if it joins a running elastic job; its place may then change
    FARANDOLE_MEMBERSHIP   of an elastic job: unix:<abstract socket name> of the launcher
    FARANDOLE_STATUS_FILE  path of the shared memory in which ranks and launcher record the ends of ranks
    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT     those of torchrun, for torch.distributed
"""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from farandole._start import sockets, this_host
from farandole._start.horovod_names import NUMBERS, horovod_variables, place_variables
from farandole.launch import cgroups
from farandole.launch.hosts import bracketed
from farandole.launch.messages import shown
from farandole.launch.placement import Placement
from farandole.launch.spec import SpecError

_OWN = frozenset(
    f"FARANDOLE_{name}"
    for name in (*map(str.upper, NUMBERS), "STORE", "KEY_FILE", "STATUS_FILE", "MEMBERSHIP", "JOINS")
)
_FOREIGN = frozenset(
    f"{launcher}{name}"
    for launcher, names in {
        "": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        "GROUP_": ("RANK", "WORLD_SIZE"),
        "ROLE_": ("RANK", "WORLD_SIZE", "NAME"),
        "MPI_": ("LOCALRANKID", "LOCALNRANKS"),
        "SLURM_": ("PROCID", "LOCALID", "NODEID", "STEPID"),
        "HOROVOD_": ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME", "SET_BY"),
    }.items()
    for name in names
)
_FOREIGN_PREFIXES = ("PMI", "PET_", "TORCHELASTIC_", "OMPI_COMM_WORLD_", "SLURM_STEP_")
BACKENDS = ("native", "gloo", "mpi", "nccl")  # the core's; a test compares them
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Variables that describe this machine or this login, and would mislead a rank on another host.
_OF_THIS_MACHINE = frozenset(
    (
        *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "WINDOWID", "GPG_AGENT_INFO", "GPG_TTY", "KRB5CCNAME", "STY"),
        *("TMUX", "TMUX_PANE"),
        *("HOSTNAME", "HOST", "TMPDIR", "TMP", "TEMP", "PWD", "OLDPWD", "SHLVL", "_", "COLUMNS", "LINES"),
        *("HOME", "USER", "LOGNAME", "USERNAME", "SHELL", "MAIL"),
        *("INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET", "SYSTEMD_EXEC_PID", "MAKEFLAGS", "MFLAGS"),
        *("FARANDOLE_ADDRESS", "FARANDOLE_SSH", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
        "FARANDOLE_NODE",
    )
)
_OF_THIS_MACHINE_PREFIXES = ("SSH_", "DBUS_", "XDG_", "LISTEN_", "BASH_FUNC_", "FARANDOLE_RUN_")
_INSIDE_OPEN_MPI = "OMPI_COMM_WORLD_RANK"
_OPEN_MPI_PREFIXES = ("OMPI_", "PRTE_")


@dataclass(frozen=True)
class Settings:
    """The user's settings in the launcher's environment."""

    grace_s: float  # from asking the ranks to end to SIGKILL
    no_color: bool
    force_color: bool
    dumb_terminal: bool
    ssh: tuple[str, ...] = ("ssh",)  # the command that reaches a host


def inherited() -> dict[str, str]:
    """Return a copy of the environment that the launcher was started with."""
    return dict(os.environ)


def node() -> str:
    """FARANDOLE_NODE after a space, else "": tells this agent's host from others on one machine; Ray sets it."""
    name = os.environ.get("FARANDOLE_NODE", "")
    return f" {name}" if name else ""


def forget_options() -> None:
    """Remove FARANDOLE_RUN_NUM_PROC and similar variables: the command's options are arguments of a function."""
    for name in [each for each in os.environ if each.startswith("FARANDOLE_RUN_")]:
        del os.environ[name]


def local_names() -> frozenset[str]:
    """Return the names that -H may use for this machine, in lower case."""
    return this_host.names()


def local_addresses() -> frozenset[str]:
    """Return the addresses of this machine's network interfaces."""
    return frozenset(address.lower() for _, address in interface_addresses())


def interface_addresses() -> list[tuple[str, str]]:
    """Return (interface, address) for each address of this machine's interfaces, without IPv6 zones."""
    import psutil

    inet = (socket.AF_INET, socket.AF_INET6)
    return [
        (interface, each.address.partition("%")[0])
        for interface, found in psutil.net_if_addrs().items()
        for each in found
        if each.family in inet
    ]


def given_variables(texts: Iterable[str], base: Mapping[str, str]) -> dict[str, str]:
    """`NAME=VALUE` or `NAME`, the launcher's own value, as -x has them -> variables. Raises SpecError."""
    given: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not _NAME.fullmatch(name):
            raise SpecError(f"-x wants NAME or NAME=VALUE, NAME of letters, digits and _, not {shown(text)}.")
        if name == "FARANDOLE_ADDRESS":
            raise SpecError("-x FARANDOLE_ADDRESS: hosts find their addresses; --network-interfaces narrows them.")
        if name in _OWN:
            raise SpecError(f"-x {name}: the launcher sets it for each rank; leave it out.")
        if "\0" in value:
            raise SpecError(f"-x {name}: its value has a NUL character, which no variable can hold.")
        if not equals and name not in base:
            raise SpecError(f"-x {name}: there is no such variable here; set it, or write {name}=VALUE.")
        given[name] = value if equals else base[name]
    return given


def for_other_hosts(base: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to send to other hosts: all but those of this machine and login, then those of -x.

    Lists of GPUs stay here, as each host numbers its own; `-x CUDA_VISIBLE_DEVICES` passes one on.
    """
    travels = {
        name: value
        for name, value in base.items()
        if name not in _OF_THIS_MACHINE and not name.startswith(_OF_THIS_MACHINE_PREFIXES)
    }
    return {**travels, **given}


def settings(base: Mapping[str, str]) -> Settings:
    """Read FARANDOLE_GRACE_SECONDS and the conventions about colour."""
    text = base.get("FARANDOLE_GRACE_SECONDS", "5")
    try:
        grace_s = float(text)
    except ValueError:
        grace_s = -1.0
    if not 0.0 <= grace_s <= 86400.0:
        raise SpecError(f"FARANDOLE_GRACE_SECONDS must be a number of seconds from 0 to 86400, not {text!r}.")
    ssh = base.get("FARANDOLE_SSH", "").strip() or "ssh"
    try:
        args = shlex.split(ssh)
    except ValueError as error:
        raise SpecError(f"FARANDOLE_SSH={shown(ssh)} is no command of a shell: {str(error).lower()}.") from error
    return Settings(
        grace_s=grace_s,
        no_color=bool(base.get("NO_COLOR")),
        force_color=base.get("FORCE_COLOR", "0") not in ("", "0"),
        dumb_terminal=base.get("TERM") == "dumb",
        ssh=tuple(args),
    )


def silence_s(base: Mapping[str, str]) -> float:
    """Return the seconds of silence after which a host counts as lost. Raises SpecError."""
    try:
        return sockets.silence_timeout_s(base)
    except ValueError as error:
        raise SpecError(f"{error}.") from error


def check_backends(base: Mapping[str, str]) -> None:
    """Raise SpecError if every rank would refuse the list in FARANDOLE_BACKEND."""
    text = base.get("FARANDOLE_BACKEND", "")
    names = [name.strip() for name in text.removesuffix(",").split(",")] if text else []
    for name in names:
        known = name in BACKENDS
        if known and names.count(name) == 1:
            continue
        what = f"{name} is listed twice" if known else f"{name!r} is no backend"
        allowed = ", ".join(BACKENDS)
        raise SpecError(f"FARANDOLE_BACKEND={text}: {what}; allowed: one or more of {allowed}, the preferred first.")
    if "mpi" in names:
        raise SpecError(
            f"FARANDOLE_BACKEND={text}: the backend mpi needs MPI's own launcher: "
            f"FARANDOLE_BACKEND={text} mpirun -np N python train.py."
        )


def without_outer_job(base: Mapping[str, str]) -> dict[str, str]:
    """Drop the variables of an outer launcher, whose numbers of ranks are not those of this job.

    Settings (FARANDOLE_TIMEOUT, OMPI_MCA_* set by hand, SLURM_JOB_ID) stay.
    """
    prefixes = _FOREIGN_PREFIXES + (_OPEN_MPI_PREFIXES if _INSIDE_OPEN_MPI in base else ())
    return {
        name: value
        for name, value in base.items()
        if name not in _OWN and name not in _FOREIGN and not name.startswith(prefixes)
    }


def for_rank(
    base: Mapping[str, str],
    placement: Placement,
    *,
    store: str,
    key_file: str,
    cores: int,
    start_timeout_s: float | None,
    status_file: str = "",
    master: tuple[str, int] | None = None,
    address: str = "",
    membership: str = "",
    joins: int = -1,
) -> dict[str, str]:
    """Return the whole environment of one rank.

    `master`: the address and port at which rank 0 may listen for torch.distributed. `address`: of this host, for ranks
    on others. `membership`: the abstract name of the launcher's socket for an elastic job.
    `joins`: the number of a rank that joins such a job, whose place is provisional.
    """
    if joins >= 0:
        placement = replace(placement, rank=placement.size - 1)
    place = vars(placement)
    result = without_outer_job(base) | place_variables("FARANDOLE", place) | horovod_variables(place, placement.host)
    result.update(
        FARANDOLE_STORE=store,
        FARANDOLE_KEY_FILE=key_file,
        RANK=str(placement.rank),
        WORLD_SIZE=str(placement.size),
        LOCAL_RANK=str(placement.local_rank),
        LOCAL_WORLD_SIZE=str(placement.local_size),
    )
    if status_file:
        result["FARANDOLE_STATUS_FILE"] = status_file
    if master is not None:
        result.update(MASTER_ADDR=master[0], MASTER_PORT=str(master[1]))
    if address:
        result["FARANDOLE_ADDRESS"] = bracketed(address)
    if membership:
        result["FARANDOLE_MEMBERSHIP"] = f"unix:{membership}"
    if joins >= 0:
        result["FARANDOLE_JOINS"] = str(joins)
    if start_timeout_s is not None:
        result["FARANDOLE_START_TIMEOUT"] = f"{start_timeout_s:g}"
    result.setdefault("OMP_NUM_THREADS", str(max(1, cores // placement.local_size)))
    result.setdefault("PYTHONUNBUFFERED", "1")
    return result


def version_of(distribution: str) -> str:
    """Return the version of an installed distribution; "" if it is not installed."""
    from importlib import metadata  # takes 10 ms; a job on one host does not need it

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def own_version() -> str:
    """Return the version of this installation."""
    return version_of("farandole") or "(run from its source tree)"


def available_cores(proc: Path = cgroups.PROC, groups: Path = cgroups.GROUPS) -> int:
    """Return the number of cores this process may use: its affinity, limited by all cgroup quotas; at least 1."""
    return max(1, int(min(len(os.sched_getaffinity(0)), cgroups.cores(proc, groups))))
