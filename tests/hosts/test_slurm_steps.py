"""A small Slurm on the hosts of a lab: `farandole run` in an allocation starts its ranks by srun."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lab import Host, Lab

pytestmark = pytest.mark.timeout(300)
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc")
SCRIPT = """
import os, socket, numpy as np, farandole.numpy as hvd
hvd.init()
total = hvd.allreduce(np.ones(1000) * (hvd.rank() + 1), op=hvd.Sum)
assert total[0] == 10
print(hvd.rank(), hvd.local_rank(), socket.gethostname(), flush=True)
"""
SETTINGS = """
ClusterName=lab
SlurmctldHost=h0(10.77.0.10)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge/munge.socket.2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=h0 NodeAddr=10.77.0.10 CPUs=2 RealMemory=1000
NodeName=h1 NodeAddr=10.77.0.11 CPUs=2 RealMemory=1000
PartitionName=debug Nodes=h0,h1 Default=YES State=UP
"""


class Slurm:
    """The daemons of two hosts."""

    def __init__(self, hosts: list[Host], folder: Path) -> None:
        self.hosts, self.settings = hosts, folder / "slurm.conf"
        self.settings.write_text(SETTINGS.format(folder=folder))
        key = os.urandom(64).hex()
        self._running: list[Any] = []
        for host in hosts:  # munged is no root, and may not look into our folders
            host.run(["install", "-d", "-o", "munge", "-g", "munge", "-m", "755", "/run/munge"])
            host.run(["runuser", "-u", "munge", "--", "sh", "-c", f"umask 077; echo {key} > /run/munge/key"])
            files = [f"--{name}-file=/run/munge/{name}" for name in ("key", "log", "seed", "pid")]
            self._start(host, ["runuser", "-u", "munge", "--", "munged", "--foreground", "--force", *files])
        (folder / "state").mkdir()
        self._start(hosts[0], ["slurmctld", "-D", "-i"])
        for host in hosts:
            (folder / f"spool-{host.name}").mkdir()
            self._start(host, ["slurmd", "-D", "-N", host.name])

    def run(self, *words: object, timeout: float = 90) -> Any:
        """A command on the first host, with Slurm's settings."""
        return self.hosts[0].run(["env", f"SLURM_CONF={self.settings}", *map(str, words)], timeout=timeout)

    def await_nodes(self) -> None:
        until = time.monotonic() + 60
        while self.run("sinfo", "-h", "-o", "%D %t").stdout.strip() != "2 idle":
            assert time.monotonic() < until, self.run("sinfo", "-N", "-l").stdout
            time.sleep(0.2)

    def _start(self, host: Host, words: list[str]) -> None:
        log = (self.settings.parent / f"{host.name}-{len(self._running)}.out").open("w")
        command = ["env", f"SLURM_CONF={self.settings}", f"PATH={os.environ['PATH']}:/usr/sbin", *words]
        self._running.append(host.start(command, stdin=-3, stdout=log, stderr=log))

    def close(self) -> None:
        for each in self._running:
            each.kill()
            each.wait()


@contextmanager
def running_slurm(lab: Lab, folder: Path) -> Iterator[Slurm]:
    missing = [each for each in PROGRAMS if not shutil.which(each, path=f"{os.environ['PATH']}:/usr/sbin")]
    if missing or os.geteuid() != 0:
        pytest.skip(f"a small Slurm needs root and {', '.join(missing) or 'its programs'}")
    made = Slurm(lab.hosts(2), folder)
    try:
        made.await_nodes()
        yield made
    finally:
        made.close()


@pytest.fixture
def slurm(lab: Lab, tmp_path: Path) -> Iterator[Slurm]:
    with running_slurm(lab, tmp_path) as made:
        yield made


def test_an_allocation_is_filled_by_its_steps(slurm: Slurm, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    launcher = [sys.executable, "-m", "farandole.launch", "run"]
    done = slurm.run("salloc", "-N2", "--ntasks-per-node=2", "--quiet", *launcher, "python", script)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[{rank} h{rank // 2}] {rank} {rank % 2} h{rank // 2}" for rank in range(4)
    ]
    failing = "import os, sys; sys.exit(7 * (os.environ['RANK'] == '3'))"
    done = slurm.run("salloc", "-N2", "--ntasks-per-node=2", "--quiet", *launcher, "python", "-c", failing)
    assert done.returncode == 7 and "rank 3 on h1" in done.stderr, done.stderr
    done = slurm.run("srun", "-N2", "-n2", *launcher, "true")
    assert "srun has started 2 launchers" in done.stderr, done.stderr
    assert slurm.run("squeue", "-h").stdout == ""
