"""Starts a Python script as two ranks on each of two hosts, by each launcher."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import mpis
from lab import Lab

LAUNCHERS = ("farandole run", "torchrun", "openmpi", "mpich", "slurm", "srun")
LIMIT_S = 280.0
_OURS = (sys.executable, "-m", "farandole.launch", "run")


class Ended(NamedTuple):
    """The end of a launcher's process."""

    code: int
    out: str
    err: str


def run(launcher: str, lab: Lab, folder: Path, script: Sequence[str | Path], **variables: str) -> list[Ended]:
    """The script with its arguments, by a launcher. torchrun is started once on each host, the others once.

    On h1, a launcher of MPI has only the variables that it passes on.
    """
    words = list(map(str, script))
    if launcher == "torchrun":
        return _torchrun(lab, words, variables)
    if launcher in ("slurm", "srun"):
        return [_by_slurm(lab, folder, words, variables, starts_ranks=launcher == "srun")]
    if launcher == "farandole run":
        command = [*_OURS, "-H", "h0:2,h1:2", sys.executable]
        variables = {**variables, "FARANDOLE_SSH": " ".join(lab.ssh_command)}
    else:
        variables = {
            **{name: value for name, value in mpis.variables(launcher).items() if "BACKEND" not in name},
            **variables,
        }
        command = [*_mpirun(lab, launcher, folder), sys.executable]
    done = lab.hosts(2)[0].run([*_environment(variables), *command, *words], timeout=LIMIT_S, cwd=folder)
    return [Ended(done.returncode, done.stdout, done.stderr)]


def _environment(variables: dict[str, str]) -> list[str]:
    return ["env", *(f"{name}={value}" for name, value in variables.items())]


def _torchrun(lab: Lab, words: list[str], variables: dict[str, str]) -> list[Ended]:
    hosts = lab.hosts(2)
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{hosts[0].address}:29400", *words]
    command = [*_environment(variables), *command]
    running = [host.start(command, stdin=-3, stdout=-1, stderr=-1, text=True) for host in hosts]
    told = [each.communicate(timeout=LIMIT_S) for each in running]
    return [Ended(each.returncode, *texts) for each, texts in zip(running, told, strict=True)]


def _mpirun(lab: Lab, kind: str, folder: Path) -> list[str]:
    ssh = folder / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {" ".join(lab.ssh_command)} "$@"\n')
    ssh.chmod(0o700)
    program = str(mpis.installed(kind) / "bin" / "mpirun")
    if kind == "openmpi":
        options = ["--prtemca", "plm_ssh_agent", str(ssh), "--host", "h0:2,h1:2", "--bind-to", "none"]
        options += ["-x", "FARANDOLE_MPI_LIB"]  # variables do not travel by themselves
    else:
        options = ["-launcher", "ssh", "-launcher-exec", str(ssh), "-hosts", "h0:2,h1:2"]
    return [program, *options, "-n", "4"]


def _by_slurm(lab: Lab, folder: Path, words: list[str], variables: dict[str, str], *, starts_ranks: bool) -> Ended:
    """By `farandole run` in an allocation, or with `srun` as the launcher of the ranks."""
    from test_slurm_steps import running_slurm

    environment = _environment(variables)
    ours = ["salloc", "-N2", "--ntasks-per-node=2", "--quiet", *environment, *_OURS]
    srun = [*environment, "srun", "-N2", "-n4", "--mpi=pmi2", "--quiet"]
    with running_slurm(lab, folder) as slurm:
        done = slurm.run(*(srun if starts_ranks else ours), sys.executable, *words, timeout=LIMIT_S)
    return Ended(done.returncode, done.stdout, done.stderr)
