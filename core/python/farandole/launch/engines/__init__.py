"""The engines of clusters in whose allocations `farandole run` finds its hosts: one file each.

    file       hosts and slots                          the way to a host
    flux.py    flux resource R                          flux exec
    slurm.py   SLURM_JOB_NODELIST, by scontrol          srun
    lsf.py     LSB_MCPU_HOSTS                           blaunch
    pbs.py     PBS_NODEFILE                             ssh: PBS's own programs connect no stdin and stdout
    tasks.py   the caller's hub, as of Ray and Spark    a connection from that hub

Tests run Slurm's. The others follow their documentation, with recorded or written environments as tests.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from farandole.launch.engines import flux, lsf, pbs, slurm
from farandole.launch.hosts import HostList


@dataclass(frozen=True)
class Engine:
    """A program that hands out hosts to jobs."""

    allocation: Callable[[Mapping[str, str]], HostList | None]  # that we run in; raises JobError
    program: str = "ssh"  # that reaches a host
    command: Callable[[str, list[str]], list[str]] | None = None  # of this host and an agent's words; None: by ssh
    connect: Callable[[str], socket.socket] | None = None  # to the agent of this host, which runs already
    hosts: Callable[[], HostList] | None = None  # with agents, where they may come and go; raises JobError

    @property
    def has_agents(self) -> bool:
        """Returns whether agents run already, each in a folder and with variables of its own."""
        return self.connect is not None


# The innermost first: Flux runs inside allocations of others, too.
_ENGINES = (
    Engine(flux.allocation, "flux exec", flux.command),
    Engine(slurm.allocation, "srun", slurm.command),
    Engine(lsf.allocation, "blaunch", lsf.command),
    Engine(pbs.allocation),
)


def allocation(environ: Mapping[str, str]) -> tuple[HostList | None, Engine | None]:
    """The hosts of the allocation of several hosts that we run in, and its engine; None, None elsewhere.

    Raises:
        JobError: the engine has started several of us, or does not tell its hosts.
    """
    for engine in _ENGINES:
        if (found := engine.allocation(environ)) is not None:
            return found, engine
    return None, None
