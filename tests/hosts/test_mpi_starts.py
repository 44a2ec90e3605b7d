"""Ranks that an MPI's mpirun starts on several hosts, by ssh; farandole's own links carry their operations."""

from __future__ import annotations

from pathlib import Path

import launchers
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


@pytest.mark.parametrize("kind", ["openmpi", "mpich"])
def test_ranks_of_mpirun_meet_over_hosts(lab: Lab, tmp_path: Path, kind: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    (ended,) = launchers.run(kind, lab, tmp_path, [script])
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == [f"{rank} 4 {rank % 2} {rank // 2} h{rank // 2}" for rank in range(4)]
