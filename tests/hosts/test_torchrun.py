"""Ranks of several hosts that torchrun starts, or a program itself. FARANDOLE_LONG=1: a required key is told, too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import launchers
import pytest
from lab import Lab

pytestmark = pytest.mark.timeout(300)
LONG = bool(os.environ.get("FARANDOLE_LONG"))

SCRIPT = """
import os, socket, sys
{imported}
import numpy as np, farandole.numpy as hvd
hvd.init()
total = hvd.allreduce(np.arange(1000.0) * (hvd.rank() + 1), op=hvd.Sum)
assert np.array_equal(total, np.arange(1000.0) * 10)
place = hvd.rank(), int(os.environ["RANK"]), hvd.local_rank(), hvd.cross_rank(), socket.gethostname()
hvd.shutdown()
hvd.init()
hvd.barrier()
os.write(1, (" ".join(map(str, place)) + "\\n").encode())
"""


def test_ranks_meet_in_torchs_store(lab: Lab, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(imported="import farandole_torch"))
    found = launchers.run("torchrun", lab, tmp_path, [script])
    assert [code for code, _, _ in found] == [0, 0], found
    lines = sorted(line for _, out, _ in found for line in out.splitlines())
    assert [line.split()[:2] for line in lines] == [[str(rank)] * 2 for rank in range(4)]
    assert [line.split()[2] for line in lines] == ["0", "1", "0", "1"]
    assert len({tuple(line.split()[3:]) for line in lines}) == 2


OF_PROGRAM = """
import sys
import farandole, farandole_torch.distributed, torch, torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("farandole", init_method="tcp://10.77.0.10:29400", rank=rank, world_size=3)
total = torch.full((1000,), rank + 1.0)
dist.all_reduce(total)
assert total.tolist() == [6.0] * 1000
print(rank, farandole.rank(), farandole.local_rank(), farandole.cross_size())
dist.barrier()
"""


def test_ranks_that_a_program_starts_meet_in_torchs_store(lab: Lab, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(OF_PROGRAM)
    first, second = lab.hosts(2)
    command = [sys.executable, script]
    starts = [(first, "0"), (second, "1"), (first, "2")]
    running = [host.start([*command, rank], stdin=-3, stdout=-1, stderr=-1, text=True) for host, rank in starts]
    told = [each.communicate(timeout=120) for each in running]
    assert [out for out, _ in told] == ["0 0 0 2\n", "1 1 0 2\n", "2 2 1 1\n"], told


CASES = [("", {}, "import farandole_torch before init()")]
if LONG:
    required = {"FARANDOLE_REQUIRE_KEY": "1"}
    CASES += [("import farandole_torch", required, "FARANDOLE_REQUIRE_KEY='1' asks for a job key")]


@pytest.mark.parametrize(("imported", "variables", "words"), CASES)
def test_what_cannot_be_is_one_sentence(
    lab: Lab, tmp_path: Path, imported: str, variables: dict[str, str], words: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(imported=imported))
    for code, _, err in launchers.run("torchrun", lab, tmp_path, [script], **variables):
        assert code == 1 and words in err
