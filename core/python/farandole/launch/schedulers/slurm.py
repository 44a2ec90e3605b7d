"""An allocation of Slurm: its hosts, and srun in the place of ssh."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from farandole._start import slurm as step
from farandole.launch.hosts import HostList, HostSlots, check_host
from farandole.launch.messages import shown
from farandole.launch.spec import SpecError

ORIGIN = "Slurm's allocation"
_SCONTROL_SECONDS = 10


def allocation(environ: Mapping[str, str]) -> HostList | None:
    """The hosts of the allocation that we run in, each with its tasks as slots; None outside and where it is one host.

    Raises:
        SpecError: srun has started several of us, or Slurm does not tell its hosts.
    """
    nodes = environ.get("SLURM_JOB_NODELIST", "")
    if "SLURM_JOB_ID" not in environ or not nodes:
        return None
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks != "1" and "SLURM_PROCID" in environ:
        raise SpecError(
            f"srun has started {tasks if tasks.isdecimal() else 'several'} launchers: start farandole run once, in the "
            "batch script without srun, or with srun --ntasks=1."
        )
    if environ.get("SLURM_JOB_NUM_NODES", "1") == "1":
        return None
    names = _host_names(nodes)
    counts = task_counts(environ.get("SLURM_TASKS_PER_NODE", "1"), len(names))
    return HostList(
        tuple(HostSlots(check_host(name), count) for name, count in zip(names, counts, strict=True)), ORIGIN
    )


def task_counts(text: str, hosts: int) -> list[int]:
    """`2(x3),1` -> 2, 2, 2, 1. Raises SpecError."""
    try:
        counts = step.task_counts(text)
    except ValueError:
        raise SpecError(f"SLURM_TASKS_PER_NODE={shown(text)} is not understood; give the hosts with -H.") from None
    if len(counts) != hosts:
        raise SpecError(f"SLURM_TASKS_PER_NODE={shown(text)} is not of {hosts} hosts; give the hosts with -H.")
    return counts


def command(host: str, args: list[str]) -> list[str]:
    """The arguments that start an agent on a host of the allocation, beside whatever else of the job runs there."""
    srun = ["srun", "--nodes=1", "--ntasks=1", f"--nodelist={host}", "--overlap", "--cpu-bind=none", "--unbuffered"]
    return [*srun, "--quiet", "--kill-on-bad-exit=1", "--export=ALL", *args]


def _host_names(nodes: str) -> list[str]:
    """Slurm's own program knows its notation, `h[0-3,7]`."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "hostnames", nodes],
            capture_output=True,
            text=True,
            timeout=_SCONTROL_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SpecError(f"scontrol show hostnames {shown(nodes)} failed ({error}); give the hosts with -H.") from error
    return done.stdout.split()
