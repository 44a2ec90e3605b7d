"""Sources of hosts: each asks by commands, and makes a list of hosts of their output. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from farandole.launch.hosts import HostList, HostSlots, parse_hostfile, parse_lines
from farandole.launch.messages import shown
from farandole.launch.spec import SpecError

Asking = Generator[list[str], str, HostList]
"""Yields commands, is sent what each has printed, and returns the hosts. Raises SpecError for nonsense."""
EVERY_SECONDS = 1.0
_EVERY_SECONDS_OF_SLURM = 10.0  # its controller serves a whole cluster


@dataclass(frozen=True)
class Source:
    """Where to ask for hosts."""

    name: str  # as messages have it
    ask: Callable[[], Asking]
    every_s: float = EVERY_SECONDS  # from one answer to the next question


def script(command: str, slots_per_host: int | None) -> Source:
    """A command of a shell that prints `host` or `host:slots` a line."""
    name = f"--host-discovery-script {command}"

    def ask() -> Asking:
        return parse_lines((yield ["sh", "-c", command]), name, slots_per_host or 1)

    return Source(name, ask)


def hostfile(path: Path) -> Source:
    """The file of --hostfile. Another process reads it, since a server of files may hang."""

    def ask() -> Asking:
        return parse_hostfile((yield ["cat", "--", str(path.absolute())]), str(path))

    return Source(f"--hostfile {path}", ask)


def service(name: str, slots_per_host: int | None) -> Source:
    """The addresses of a name, such as that of a headless service of Kubernetes."""
    origin = f"--host-discovery-service {name}"

    def ask() -> Asking:
        return HostList(tuple(_addresses((yield ["getent", "ahosts", name]), origin, slots_per_host or 1)), origin)

    return Source(origin, ask)


def _addresses(text: str, origin: str, slots: int) -> list[HostSlots]:
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
    return [HostSlots(address, slots) for address in chosen]


def slurm(environ: Mapping[str, str], known: HostList | None, slots_per_host: int | None) -> Source | None:
    """The allocation that we run in, which may grow or shrink; None outside. `known`: as it was at the start."""
    job = environ.get("SLURM_JOB_ID", "")
    if not re.fullmatch(r"[0-9]{1,18}", job):
        return None
    counts = {each.host: each.count for each in known.slots} if known else {}
    usual = slots_per_host or max(counts.values(), default=1)
    name = f"Slurm's allocation {job}"

    def ask() -> Asking:
        nodes = _node_list((yield ["scontrol", "--oneliner", "show", "job", job]), name)
        text = yield ["scontrol", "show", "hostnames", nodes]
        found = parse_lines(text, name, usual)
        return HostList(tuple(HostSlots(each.host, counts.get(each.host, each.count)) for each in found.slots), name)

    return Source(name, ask, _EVERY_SECONDS_OF_SLURM)


def _node_list(text: str, name: str) -> str:
    """The value of NodeList=, which is not that of ReqNodeList= or ExcNodeList=."""
    found = re.search(r"(?:^|\s)NodeList=(\S+)", text)
    if found is None or found[1] == "(null)":
        raise SpecError(f"{name} has no nodes in what scontrol show job prints.")
    return found[1]


def fixed(hosts: HostList) -> Source:
    """The hosts of -H, which stay; those of them that are lost may come back."""
    return known(hosts.origin, lambda: hosts)


def known(name: str, hosts: Callable[[], HostList]) -> Source:
    """Hosts that this process knows, or hears of at once: `hosts` raises SpecError."""

    def ask() -> Asking:
        return hosts()
        yield  # makes this a generator

    return Source(name, ask)
