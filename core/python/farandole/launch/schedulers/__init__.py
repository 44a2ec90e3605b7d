"""The schedulers in whose allocations `farandole run` finds its hosts: one file each.

    file       hosts and slots                          how a host is reached
    flux.py    flux resource R                          flux exec
    slurm.py   SLURM_JOB_NODELIST, by scontrol          srun
    lsf.py     LSB_MCPU_HOSTS                           blaunch
    pbs.py     PBS_NODEFILE                             ssh: PBS's own programs connect no stdin and stdout
    tasks.py   the caller's server, as of Ray and Spark    a connection from that server

Tests run Slurm's. The others follow their documentation, with recorded or written environments as tests.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from farandole.launch.hosts import HostList
from farandole.launch.schedulers import flux, lsf, pbs, slurm


@dataclass(frozen=True)
class Scheduler:
    """A program that hands out hosts to jobs."""

    allocation: Callable[[Mapping[str, str]], HostList | None]  # that we run in; raises SpecError
    program: str = "ssh"  # that reaches a host
    command: Callable[[str, list[str]], list[str]] | None = (
        None  # of this host and the arguments of an agent; None: by ssh
    )
    connect: Callable[[str], socket.socket] | None = None  # to the agent of this host, which runs already
    hosts: Callable[[], HostList] | None = None  # with agents, where they may come and go; raises SpecError

    @property
    def has_agents(self) -> bool:
        """Return whether agents run already, each in a folder and with variables of its own."""
        return self.connect is not None


# The innermost first: Flux runs inside allocations of others, too.
_SCHEDULERS = (
    Scheduler(flux.allocation, "flux exec", flux.command),
    Scheduler(slurm.allocation, "srun", slurm.command),
    Scheduler(lsf.allocation, "blaunch", lsf.command),
    Scheduler(pbs.allocation),
)


def allocation(environ: Mapping[str, str]) -> tuple[HostList | None, Scheduler | None]:
    """The hosts of the allocation of several hosts that we run in, and its scheduler; None, None elsewhere.

    Raises:
        SpecError: the scheduler has started several of us, or does not tell its hosts.
    """
    for scheduler in _SCHEDULERS:
        if (found := scheduler.allocation(environ)) is not None:
            return found, scheduler
    return None, None
