"""torch.distributed without an init_method, however the ranks are started; Farandole's backend beside gloo.

The ranks are forks of a process that has imported PyTorch. tests/frameworks/examples runs the launchers' commands, with
FARANDOLE_LONG=1.
"""

import socket

import pytest
from farandole.testing import spawn
from versions import needs

pytestmark = [pytest.mark.timeout(180), needs(2, 7, "what the backend needs")]
WORKS = """
import sys

def works(backend, **where):
    import torch, torch.distributed as dist
    dist.init_process_group(backend, **where)
    for group in (None, dist.new_group(backend="farandole"), dist.new_group(backend="gloo")):
        ones = torch.ones(2)
        dist.all_reduce(ones, group=group)
        assert ones.tolist() == [2, 2]
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} by {dist.get_backend()}", flush=True)
    dist.destroy_process_group()
    import farandole_torch
    farandole_torch.shutdown()
    farandole_torch.init()
    assert (farandole_torch.rank(), farandole_torch.size()) == (where.get("rank", farandole_torch.rank()), 2)
"""
BY_ENVIRONMENT = WORKS + "\nworks('farandole')\n"
BY_TORCHRUN = (
    WORKS
    + """
import os
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

for name in [name for name in os.environ if name.startswith("FARANDOLE_")]:
    del os.environ[name]
here = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "run_id": "test"}  # what --standalone means
elastic_launch(LaunchConfig(1, 1, 2, start_method="fork", **here), works)("farandole")
"""
)
BY_ITSELF = (
    WORKS
    + """
if __name__ == "__main__":
    import multiprocessing, os
    for name in [name for name in os.environ if name.startswith("FARANDOLE_")]:
        del os.environ[name]
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(
            target=works, args=["farandole"], kwargs={"rank": rank, "world_size": 2, "init_method": sys.argv[1]}
        )
        for rank in range(2)
    ]
    for each in processes:
        each.start()
    for each in processes:
        each.join()
    sys.exit(max(each.exitcode for each in processes))
"""
)


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def check(output):
    # Among what gloo says, perhaps; and the lines of two processes can mix.
    assert [output.count(f"rank {rank} of 2 by farandole") for rank in range(2)] == [1, 1], output


def test_ranks_of_farandole_run_find_each_other(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(BY_ENVIRONMENT)
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port())}  # as it tells torch
    check("".join(spawn(2, script, timeout=120, env=lambda rank: {"RANK": str(rank), **meeting})))


@pytest.mark.parametrize("text", [BY_TORCHRUN, BY_ITSELF], ids=["torchrun", "by itself"])
def test_the_ranks_find_each_other(tmp_path, text):
    script = tmp_path / "train.py"
    script.write_text(text)
    check(spawn(1, script, f"tcp://127.0.0.1:{port()}", timeout=120)[0])


def test_a_refusal_shows_the_users_line_alone(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        'dist.init_process_group("farandole", init_method="farandole://")\n'
        "dist.all_reduce(torch.ones(1), dist.ReduceOp.BXOR)\n"
    )
    _, output = spawn(2, script, timeout=60, check=False)[0]
    assert "bitwise reductions are of integers and bool, not of torch.float32" in output
    assert 'train.py", line 3' in output.rpartition('  File "')[2], output
