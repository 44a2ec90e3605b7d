"""Ranks that an MPI's mpirun starts on several hosts, by ssh; farandole's own links carry their operations."""

from __future__ import annotations

import sys
from pathlib import Path

import mpis
import pytest
from lab import Lab

pytestmark = pytest.mark.timeout(300)

SCRIPT = """
import os, socket, numpy as np, farandole.numpy as hvd
hvd.init()
total = hvd.allreduce(np.arange(100_000.0) * (hvd.rank() + 1), op=hvd.Sum)
assert np.array_equal(total, np.arange(100_000.0) * 10)
os.write(1, f"{hvd.rank()} {hvd.size()} {hvd.local_rank()} {hvd.cross_rank()} {socket.gethostname()}\\n".encode())
"""


def command(lab: Lab, kind: str, folder: Path) -> list[str]:
    """The launcher of two ranks on each of two hosts."""
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


@pytest.mark.parametrize("kind", ["openmpi", "mpich"])
def test_ranks_of_mpirun_meet_over_hosts(lab: Lab, tmp_path: Path, kind: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    hosts = lab.hosts(2)
    variables = {name: value for name, value in mpis.variables(kind).items() if name != "FARANDOLE_BACKEND"}
    words = ["env", *(f"{name}={value}" for name, value in variables.items()), *command(lab, kind, tmp_path)]
    done = hosts[0].run([*words, sys.executable, str(script)], timeout=120)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{rank} 4 {rank % 2} {rank // 2} h{rank // 2}" for rank in range(4)]
