"""The options of `farandole run` as one value, and those among them for other hosts. Pure, but for a look at a file."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from farandole.launch.engines import Engine
from farandole.launch.hosts import MAX_RANKS, parse_count, split_list
from farandole.launch.job import Placement
from farandole.launch.membership import Lease
from farandole.launch.messages import shown
from farandole.launch.slots import Backoff, Slots

_MOST_SECONDS = 1e9  # as in the core
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:-]{0,14}")  # Linux allows 15 bytes
_PYTHON = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+=@,:-]*")
_UNFIT_FOR_SSH = re.compile(r"[%\"'\\]|\$\{|[^ -~]")  # ssh expands % and ${ in names of files


class OptionError(ValueError):
    """An option has a value that cannot be used; the message is one sentence for the user."""


@dataclass(frozen=True)
class RunOptions:
    """The options of `farandole run`, each as its line in cli.py converts it."""

    num_proc: str | None
    hosts: str | None
    hostfile: Path | None
    module: bool
    prefix: bool
    timestamp: bool
    output_dir: Path | None
    start_timeout: float | None
    backend: str | None
    timeline_filename: str | None  # or a URL
    timeline_mark_cycles: bool
    verbose: bool
    live: bool
    live_port: int | None
    metrics: int | None
    metrics_address: str | None
    metrics_key_file: Path | None
    ssh_port: int | None
    ssh_identity_file: Path | None
    env: tuple[str, ...]
    python: str | None
    network_interfaces: str | None
    bind_to: str
    dry_run: bool
    show_config: bool
    config_file: Path | None
    file: Path | None
    nnodes: str | None
    node_rank: str | None
    rendezvous: str | None
    key_file: Path | None
    nproc_per_node: str | None
    min_np: int | None
    max_np: int | None
    reset_limit: int | None
    blacklist_cooldown_range: tuple[float, float] | None
    elastic_timeout: float | None
    host_discovery_script: str | None
    host_discovery_service: str | None
    slots_per_host: int | None


@dataclass(frozen=True)
class Elastic:
    """How a job goes on when ranks are lost."""

    min_np: int  # the fewest ranks
    timeout_s: float  # that living ranks have to notice that others are lost
    max_np: int = 0  # ranks that are lost are replaced, up to so many; 0: they are not
    backoff: Backoff = field(default_factory=Backoff)
    reset_limit: int | None = None  # the most changes of the ranks

    def for_ranks(self, placements: Sequence[Placement]) -> tuple[Lease, Slots | None]:
        """The decisions about a job that starts with these ranks; no slots where lost ranks are not replaced."""
        lease = Lease(len(placements), self.min_np, self.timeout_s, self.reset_limit)
        if not self.max_np:
            return lease, None
        slots = Slots([*placements], self.max_np, self.backoff)
        lease.may_grow = lambda: slots.may_bring
        return lease, slots


@dataclass(frozen=True)
class HostOptions:
    """The options of the job that concern its hosts. Each was checked: none is an option or a word of a shell."""

    ssh_port: int | None = None
    ssh_identity: Path | None = None  # absolute
    python: str = sys.executable  # the interpreter on other hosts
    interfaces: tuple[str, ...] = ()  # of the network; none: all may be used
    bind_to: str = "none"  # or "core"
    engine: Engine | None = None  # whose allocation has the hosts; None: the user named them
    env: Mapping[str, str] = field(default_factory=dict)  # of -x, for the ranks of all hosts
    silence_s: float = 4.0  # of a host until it counts as lost


def elastic(options: RunOptions, ranks: int, base: Mapping[str, str], has_nodes: bool) -> Elastic | None:
    """How the job goes on when ranks are lost; None without --min-np and --max-np. Raises OptionError."""
    discovers = has_discovery(options)
    if options.min_np is None and options.max_np is None and not discovers:
        return None
    min_np = ranks if options.min_np is None and not discovers else least(options)
    if options.max_np is not None and options.max_np < ranks:
        raise OptionError(f"--max-np {options.max_np} is fewer than the {ranks} ranks that are started.")
    if min_np > ranks:
        raise OptionError(f"--min-np {min_np} asks for more ranks than the {ranks} that are started.")
    if has_nodes:
        raise OptionError("--min-np works with hosts that this launcher reaches (-H), not with --nnodes.")
    timeout_s = elastic_timeout_s(options, base)
    least_s, most_s = options.blacklist_cooldown_range or (Backoff.least_s, Backoff.most_s)
    if not 0 < least_s <= most_s:
        raise OptionError(
            f"--blacklist-cooldown-range wants two numbers of seconds, the smaller first, not {least_s:g} {most_s:g}."
        )
    max_np = options.max_np or (MAX_RANKS if discovers else 0)
    return Elastic(min_np, timeout_s, max_np, Backoff(least_s, most_s), options.reset_limit)


def elastic_timeout_s(options: RunOptions, base: Mapping[str, str]) -> float:
    """The value of --elastic-timeout, or of its setting. Raises OptionError."""
    given = options.elastic_timeout
    text = base.get("FARANDOLE_ELASTIC_TIMEOUT") or "600" if given is None else str(given)
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = -1.0
    if not 0 < timeout_s <= _MOST_SECONDS:
        name = "FARANDOLE_ELASTIC_TIMEOUT" if given is None else "--elastic-timeout"
        raise OptionError(f"{name} must be a positive number of seconds, not {shown(text)}.")
    return timeout_s


def has_discovery(options: RunOptions) -> bool:
    """Returns whether the user named a source of hosts, which makes a job elastic."""
    return options.host_discovery_script is not None or options.host_discovery_service is not None


def least(options: RunOptions) -> int:
    """The fewest ranks of an elastic job whose hosts are discovered: by default those of -np. Raises OptionError."""
    if options.min_np is not None:
        return options.min_np
    if options.num_proc in (None, "auto"):
        raise OptionError("say with --min-np N how many slots must be there before the job starts, or with -np N.")
    return parse_count(str(options.num_proc), "-np")


def host_options(
    options: RunOptions, env: Mapping[str, str], elsewhere: bool, engine: Engine | None = None
) -> HostOptions:
    """Check the options that concern hosts. Raises OptionError.

    Args:
        options: as typed.
        env: the variables of -x.
        elsewhere: some ranks run on other hosts, where the interpreter is needed.
        engine: whose allocation has the hosts, if the user named none.
    """
    reached = reach_options(
        options.ssh_port, options.ssh_identity_file, options.python, options.network_interfaces, elsewhere
    )
    return replace(reached, bind_to=options.bind_to, engine=engine, env=env)


def reach_options(
    ssh_port: int | None,
    identity_file: Path | None,
    python: str | None,
    network_interfaces: str | None,
    elsewhere: bool,
) -> HostOptions:
    """Check the options that say how hosts are reached. Raises OptionError."""
    interpreter = python or sys.executable
    if (python is not None or elsewhere) and not _PYTHON.fullmatch(interpreter):
        allowed = "letters, digits and _./+=@,:-"
        told = f"--python names the interpreter on other hosts by a path of {allowed}, not {shown(interpreter)}."
        raise OptionError(told)
    return HostOptions(
        ssh_port=ssh_port,
        ssh_identity=None if identity_file is None else identity(identity_file),
        python=interpreter,
        interfaces=() if network_interfaces is None else interfaces(network_interfaces),
    )


def identity(path: Path) -> Path:
    """The absolute path of a key for ssh, which is a file here."""
    absolute = path.expanduser().absolute()
    if _UNFIT_FOR_SSH.search(str(absolute)):
        raise OptionError(f"--ssh-identity-file must be a path that ssh leaves as it is, not {shown(path)}.")
    if not absolute.is_file():
        raise OptionError(f"--ssh-identity-file {path}: there is no such file on this host.")
    return absolute


def interfaces(text: str) -> tuple[str, ...]:
    """`eth0,ib0` -> the names."""
    names = tuple(split_list(text))
    for name in names:
        if not _INTERFACE.fullmatch(name):
            wanted = "names such as eth0,ib0, as `ip link` lists them"
            raise OptionError(f"--network-interfaces wants {wanted}, not {shown(name)}.")
    return names
