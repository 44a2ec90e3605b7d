"""Sources of hosts: each asks by a command, and makes a list of hosts of its output. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from farandole.launch.hosts import HostList, HostSlots, parse_lines
from farandole.launch.messages import shown
from farandole.launch.spec import SpecError

EVERY_SECONDS = 1.0
_EVERY_SECONDS_OF_SLURM = 10.0  # its controller serves a whole cluster
# For a shell. NodeList= is not ReqNodeList= or ExcNodeList=.
_NODES_OF_SLURM = """
job=$(scontrol --oneliner show job "$0") || exit
nodes=$(echo "$job" | sed -En 's/^(.*[[:space:]])?NodeList=([^[:space:]]+).*/\\2/p')
scontrol show hostnames "$nodes"
"""


@dataclass(frozen=True)
class Source:
    """A source of hosts."""

    name: str  # as messages have it
    args: Sequence[str]  # the command that answers; none: nobody is asked
    hosts_in: Callable[[str], HostList]  # what it has printed; raises SpecError for nonsense
    every_s: float = EVERY_SECONDS  # from one answer to the next question


def script(command: str, slots_per_host: int | None) -> Source:
    """A command of a shell that prints `host` or `host:slots` a line."""
    name = f"--host-discovery-script {command}"
    return Source(name, ["sh", "-c", command], lambda text: parse_lines(text, name, slots_per_host or 1))


def hostfile(path: Path) -> Source:
    """The file of --hostfile. Another process reads it, since a server of files may hang."""
    name = f"--hostfile {path}"
    return Source(name, ["cat", "--", str(path.absolute())], lambda text: parse_lines(text, name))


def service(name: str, slots_per_host: int | None) -> Source:
    """The addresses of a name, such as that of a headless service of Kubernetes."""
    origin = f"--host-discovery-service {name}"
    return Source(origin, ["getent", "ahosts", name], lambda text: _addresses(text, origin, slots_per_host or 1))


def _addresses(text: str, origin: str, slots: int) -> HostList:
    """`10.0.0.7 STREAM name` a line; a host with both kinds of addresses counts once, by that of IPv4."""
    found: dict[int, dict[str, None]] = {4: {}, 6: {}}
    for line in filter(None, text.splitlines()):
        try:
            address = ipaddress.ip_address(line.split()[0])
        except ValueError:
            raise SpecError(f"{origin}: {shown(line)} does not begin with an address.") from None
        found[address.version][str(address)] = None
    if not (chosen := found[4] or found[6]):
        raise SpecError(f"{origin} has no addresses.")
    return HostList(tuple(HostSlots(address, slots) for address in chosen), origin)


def slurm(environ: Mapping[str, str], known: HostList | None, slots_per_host: int | None) -> Source | None:
    """The allocation that we run in, which may grow or shrink; None outside. `known`: as it was at the start."""
    job = environ.get("SLURM_JOB_ID", "")
    if not re.fullmatch(r"[0-9]{1,18}", job):
        return None
    counts = {each.host: each.count for each in known.slots} if known else {}
    usual = slots_per_host or max(counts.values(), default=1)
    name = f"Slurm's allocation {job}"

    def hosts_in(text: str) -> HostList:
        if text.strip() in ("", "(null)"):
            raise SpecError(f"{name} has no nodes in what scontrol show job prints.")
        found = parse_lines(text, name, usual)
        return HostList(tuple(HostSlots(each.host, counts.get(each.host, each.count)) for each in found.slots), name)

    return Source(name, ["sh", "-c", _NODES_OF_SLURM, job], hosts_in, _EVERY_SECONDS_OF_SLURM)


def fixed(hosts: HostList) -> Source:
    """The hosts of -H, which stay; those of them that are lost may come back."""
    return Source(hosts.origin, (), lambda _: hosts)
