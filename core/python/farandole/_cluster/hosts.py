"""Groups the tasks of a cluster by host, and names the hosts for the launcher. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Task:
    """A task, by its own words.

    `order`: its number among the tasks; `identity`: of its machine and network; `name`: of its host, as the cluster has
    it; `slots`: ranks that may run for it; `gpus`: the addresses of its GPUs.
    """

    order: int
    identity: str
    name: str
    slots: int = 1
    gpus: tuple[str, ...] = ()


@dataclass
class Host:
    """A host with tasks, of which the first has the agent."""

    name: str
    tasks: list[Task] = field(default_factory=list)

    @property
    def slots(self) -> int:
        """The ranks that run there."""
        return sum(task.slots for task in self.tasks)

    @property
    def gpus(self) -> list[str]:
        """The GPUs of all its tasks, each once."""
        return list(dict.fromkeys(gpu for task in self.tasks for gpu in task.gpus))


def by_host(tasks: Iterable[Task], names: dict[str, str]) -> list[Host]:
    """The hosts of these tasks; ranks follow the order of the tasks as far as those of a host can stay together.

    `names`: of hosts so far, by identity; gets those of new ones.
    """
    hosts: dict[str, Host] = {}
    for task in sorted(tasks, key=lambda each: each.order):
        if task.identity not in names:
            names[task.identity] = free_name(task.name, [*names.values()])
        hosts.setdefault(task.identity, Host(names[task.identity]))
        hosts[task.identity].tasks.append(task)
    return list(hosts.values())


def free_name(wanted: str, taken: Sequence[str]) -> str:
    """A name that the launcher accepts for a host elsewhere, and that no other host has."""
    name = _fit(wanted)
    if name.lower() not in [each.lower() for each in taken]:
        return name
    stem = "host" if ":" in name else name
    return next(each for number in range(2, len(taken) + 3) if (each := f"{stem}-{number}") not in taken)


def _fit(wanted: str) -> str:
    """A loopback address would be the driver's own host; containers have names with underscores."""
    try:
        address = ipaddress.ip_address(wanted.strip("[]"))
    except ValueError:
        labels = [re.sub(r"[^A-Za-z0-9-]", "-", label).strip("-") for label in wanted.split(".")]
        is_name = all(_LABEL.fullmatch(label) for label in labels) and not labels[-1].isdigit()
        return ".".join(labels) if is_name else "executor"
    return "executor" if address.is_loopback or address.is_unspecified else str(address)


def listed(hosts: Iterable[Host]) -> str:
    """The hosts in the form of `farandole run -H`: h1:2,[fd00::1]:1."""
    names = ((f"[{host.name}]" if ":" in host.name else host.name, host.slots) for host in hosts)
    return ",".join(f"{name}:{slots}" for name, slots in names)
