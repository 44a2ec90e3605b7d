"""Parts of a spec, checked: how an elastic job goes on, and how hosts are reached. Pure, but for a look at a file."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from farandole.launch.hosts import MAX_RANKS, parse_count, split_list
from farandole.launch.membership import Lease
from farandole.launch.messages import shown
from farandole.launch.placement import Placement
from farandole.launch.rank_slots import Backoff, RankSlots
from farandole.launch.schedulers import Scheduler
from farandole.launch.spec import ElasticJob, JobSpec, SpecError, Where, leaves

_MOST_SECONDS = 1e9  # as in the core
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:-]{0,14}")  # Linux allows 15 bytes
_PYTHON = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+=@,:-]*")
_UNFIT_FOR_SSH = re.compile(r"[%\"'\\]|\$\{|[^ -~]")  # ssh expands % and ${ in names of files


@dataclass(frozen=True)
class Elastic:
    """The options for the loss of ranks."""

    min_np: int  # the fewest ranks
    timeout_s: float  # that living ranks have to notice that others are lost
    max_np: int = 0  # ranks that are lost are replaced, up to so many; 0: they are not
    backoff: Backoff = field(default_factory=Backoff)
    reset_limit: int | None = None  # the most changes of the ranks

    def for_ranks(self, placements: Sequence[Placement]) -> tuple[Lease, RankSlots | None]:
        """The decisions about a job that starts with these ranks; no slots where lost ranks are not replaced."""
        lease = Lease(len(placements), self.min_np, self.timeout_s, self.reset_limit)
        if not self.max_np:
            return lease, None
        slots = RankSlots([*placements], self.max_np, self.backoff)
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
    scheduler: Scheduler | None = None  # whose allocation has the hosts; None: the user named them
    env: Mapping[str, str] = field(default_factory=dict)  # of -x, for the ranks of all hosts
    silence_s: float = 4.0  # of a host until it counts as lost


def elastic(spec: JobSpec, ranks: int, base: Mapping[str, str], has_nodes: bool) -> Elastic | None:
    """The options for the loss of ranks; None without --min-np and --max-np. Raises SpecError."""
    discovers = has_discovery(spec)
    if spec.elastic.min_np is None and spec.elastic.max_np is None and not discovers:
        return None
    min_np = ranks if spec.elastic.min_np is None and not discovers else least(spec)
    if spec.elastic.max_np is not None and spec.elastic.max_np < ranks:
        raise SpecError(f"--max-np {spec.elastic.max_np} is fewer than the {ranks} ranks that are started.", "max_np")
    if min_np > ranks:
        raise SpecError(f"--min-np {min_np} asks for more ranks than the {ranks} that are started.", "min_np")
    if has_nodes:
        raise SpecError("--min-np works with hosts that this launcher reaches (-H), not with --nnodes.", "min_np")
    timeout_s = elastic_timeout_s(spec, base)
    least_s, most_s = spec.elastic.blacklist_cooldown_range or (Backoff.least_s, Backoff.most_s)
    if not 0 < least_s <= most_s:
        raise SpecError(
            f"--blacklist-cooldown-range wants two numbers of seconds, the smaller first, not {least_s:g} {most_s:g}.",
            "blacklist_cooldown_range",
        )
    max_np = spec.elastic.max_np or (MAX_RANKS if discovers else 0)
    return Elastic(min_np, timeout_s, max_np, Backoff(least_s, most_s), spec.elastic.reset_limit)


def without_effect(spec: JobSpec) -> str:
    """A sentence about options of elastic jobs that were given for a job that is not elastic, else an empty text."""
    names = [leaf.names[-1] for leaf in leaves(ElasticJob) if getattr(spec.elastic, leaf.name) != leaf.default]
    if not names:
        return ""
    return f"no effect here: {', '.join(names)}; a job goes on without lost ranks only with --min-np or --max-np."


def elastic_timeout_s(spec: JobSpec, base: Mapping[str, str]) -> float:
    """The value of --elastic-timeout, or of its setting. Raises SpecError."""
    given = spec.elastic.elastic_timeout
    text = base.get("FARANDOLE_ELASTIC_TIMEOUT") or "600" if given is None else str(given)
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = -1.0
    if not 0 < timeout_s <= _MOST_SECONDS:
        name = "FARANDOLE_ELASTIC_TIMEOUT" if given is None else "--elastic-timeout"
        raise SpecError(f"{name} must be a positive number of seconds, not {shown(text)}.")
    return timeout_s


def has_discovery(spec: JobSpec) -> bool:
    """Return whether the user named a source of hosts, which makes a job elastic."""
    return spec.elastic.host_discovery_script is not None or spec.elastic.host_discovery_service is not None


def least(spec: JobSpec) -> int:
    """The fewest ranks of an elastic job whose hosts are discovered: by default those of -np. Raises SpecError."""
    if spec.elastic.min_np is not None:
        return spec.elastic.min_np
    if spec.ranks.num_proc in (None, "auto"):
        raise SpecError(
            "say with --min-np N how many slots must be there before the job starts, or with -np N.", "min_np"
        )
    return parse_count(str(spec.ranks.num_proc), "-np")


def reach_options(where: Where, elsewhere: bool) -> HostOptions:
    """Check the options that say how hosts are reached. Raises SpecError.

    `elsewhere`: some ranks run on other hosts, where the interpreter is needed.
    """
    interpreter = where.python or sys.executable
    if (where.python is not None or elsewhere) and not _PYTHON.fullmatch(interpreter):
        allowed = "letters, digits and _./+=@,:-"
        message = f"--python names the interpreter on other hosts by a path of {allowed}, not {shown(interpreter)}."
        raise SpecError(message, "python")
    return HostOptions(
        ssh_port=where.ssh_port,
        ssh_identity=None if where.ssh_identity_file is None else identity(where.ssh_identity_file),
        python=interpreter,
        interfaces=() if where.network_interfaces is None else interfaces(where.network_interfaces),
    )


def identity(path: Path) -> Path:
    """The absolute path of a key for ssh, which is a file here."""
    absolute = path.expanduser().absolute()
    if _UNFIT_FOR_SSH.search(str(absolute)):
        raise SpecError(
            f"--ssh-identity-file must be a path that ssh leaves as it is, not {shown(path)}.", "ssh_identity_file"
        )
    if not absolute.is_file():
        raise SpecError(f"--ssh-identity-file {path}: there is no such file on this host.", "ssh_identity_file")
    return absolute


def interfaces(text: str) -> tuple[str, ...]:
    """`eth0,ib0` -> the names."""
    names = tuple(split_list(text))
    for name in names:
        if not _INTERFACE.fullmatch(name):
            wanted = "names such as eth0,ib0, as `ip link` lists them"
            raise SpecError(f"--network-interfaces wants {wanted}, not {shown(name)}.", "network_interfaces")
    return names
