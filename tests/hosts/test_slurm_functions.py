"""`farandole.run` in an allocation of Slurm: its function runs on the hosts of the allocation, which srun reaches."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lab import Lab
from test_slurm_steps import running_slurm

pytestmark = pytest.mark.timeout(300)

SCRIPT = """
import farandole, socket
def train(base):
    farandole.init()
    return farandole.rank(), socket.gethostname(), farandole.allgather_object(base + farandole.rank())
print(farandole.run(train, (10,), np=4))
print(farandole.run(socket.gethostname, np=3, hosts="localhost:3"))
print(farandole.run(lambda: farandole.run(socket.gethostname, np=2), np=4)[2])
try: farandole.run(train, (10,), np=5)
except farandole.FarandoleError as error: print(error)
"""


def test_a_function_fills_the_allocation(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    with running_slurm(lab, tmp_path) as slurm:
        done = slurm.run("salloc", "-N2", "--ntasks-per-node=2", "--quiet", sys.executable, tmp_path / "train.py")
        slurm.await_end_of_jobs()
    assert (done.returncode, done.stderr) == (0, "")
    results, here, nested, refusal = done.stdout.splitlines()
    assert results == str([(rank, f"h{rank // 2}", [10, 11, 12, 13]) for rank in range(4)])
    assert here == str(["h0"] * 3) and nested == str(["h1"] * 2)
    assert refusal.startswith("-np 5 asks for more ranks than the 4 slots of Slurm's allocation")
