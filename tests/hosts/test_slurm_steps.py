"""A small Slurm on the hosts of a lab: `farandole run` in an allocation, and ranks that srun itself starts."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mpis
import pytest
from lab import Host, Lab

pytestmark = pytest.mark.timeout(300)
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch")
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
TmpFS=/run
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

    def await_end_of_jobs(self) -> None:
        """Slurm completes a job some time after its last process."""
        until = time.monotonic() + 60
        while left := self.run("squeue", "-h").stdout:
            assert time.monotonic() < until, left
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
    slurm.await_end_of_jobs()


STEP = """
import os, socket, sys, numpy as np, farandole.numpy as hvd
if os.environ["SLURM_PROCID"] in sys.argv[1:]:
    sys.exit(0)
for _ in range(2):
    hvd.init()
    total = hvd.allreduce(np.ones(1000) * (hvd.rank() + 1), op=hvd.Sum)
    assert total[0] == hvd.size() * (hvd.size() + 1) // 2
    place = hvd.rank(), hvd.size(), hvd.local_rank(), hvd.cross_rank(), socket.gethostname()
    os.write(1, f"{place}\\n".encode())
    hvd.shutdown()
"""
SEAL = """
import os, sys
from farandole._start import munge
text = munge.seal(b"key" * 100)
assert text.startswith("MUNGE:") and [munge.unseal(text), munge.unseal(text)] == [b"key" * 100] * 2
if not os.fork():
    os.setuid(65534)
    for other in (text, munge.seal(b"mine")):
        try:
            print(munge.unseal(other), flush=True)
        except PermissionError as error:
            print(error, flush=True)
"""


@pytest.fixture
def step(slurm: Slurm, tmp_path: Path) -> Callable[..., Any]:
    """step(["-N2", "-n4"], words) runs STEP by srun with these options; it gets the words."""
    script = tmp_path / "step.py"
    script.write_text(STEP)

    def run(options: list[str], *words: str, **variables: str) -> Any:
        given = [f"{name}={value}" for name, value in variables.items()]
        return slurm.run("env", *given, "srun", "--quiet", *options, sys.executable, script, *words)

    return run


def test_ranks_that_srun_starts_meet(step: Callable[..., Any]) -> None:
    done = step(["-N2", "-n4", "--mpi=pmi2"])
    assert done.returncode == 0, done.stderr
    places = [str((rank, 4, rank % 2, rank // 2, f"h{rank // 2}")) for rank in range(4)]
    assert sorted(done.stdout.splitlines()) == sorted(places * 2)
    done = step(["-N2", "-n3", "--mpi=pmi2", "--distribution=cyclic"])
    assert done.returncode == 0, done.stderr
    places = [str((rank, 3, rank // 2, rank % 2, f"h{rank % 2}")) for rank in range(3)]
    assert sorted(done.stdout.splitlines()) == sorted(places * 2)
    done = step(["-N2", "-n2", "--mpi=pmi2"], **mpis.variables("mpich"))
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 4, done.stderr
    done = step(["-N1", "-n2", "--mpi=none"])  # a Unix socket carries the key on one host
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 4, done.stderr


def test_mistakes_of_a_step_are_one_sentence(step: Callable[..., Any], slurm: Slurm) -> None:
    done = step(["-N2", "-n2", "--mpi=none"])
    assert done.returncode == 1 and "on several hosts without PMI-2: start them with `srun --mpi=pmi2`" in done.stderr
    done = step(["-N2", "-n4", "--mpi=pmi2"], "1", "3", FARANDOLE_START_TIMEOUT="2")
    assert "rank 0 waits in init() for rank(s) 1, 3 of the 4 that srun started, which did not call it" in done.stderr
    assert "rank 2 leaves init(): rank 0 waits in init()" in done.stderr, done.stderr
    alone = "import farandole; farandole.init(); print(farandole.size())"
    script = slurm.settings.parent / "batch.sh"
    script.write_text(f"#!/bin/sh\n{sys.executable} -c '{alone}'\n")
    output = slurm.settings.parent / "batch.out"
    done = slurm.run("sbatch", "--wait", "-N2", "-n2", f"--output={output}", script)
    assert "SLURM_NTASKS=2, but the script of Slurm's job has started this process once" in output.read_text()


def test_munge_seals_bytes_for_the_same_user(slurm: Slurm) -> None:
    done = slurm.run(sys.executable, "-c", SEAL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "MUNGE does not vouch for it: Unauthorized credential; run munged with the same key on all hosts",
        "b'mine'",
    ]
