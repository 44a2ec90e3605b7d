"""torch.distributed without an init_method, however the ranks are started; Farandole's back end beside gloo."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from versions import needs

pytestmark = [pytest.mark.timeout(180), needs(2, 7, "what the back end needs")]
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
BY_ITSELF = (
    WORKS
    + """
if __name__ == "__main__":
    import multiprocessing
    processes = [
        multiprocessing.get_context("spawn").Process(
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


@pytest.mark.parametrize(
    ("starter", "text"),
    [
        (["farandole.launch", "run", "--no-prefix", "-np", "2"], BY_ENVIRONMENT),
        (["torch.distributed.run", "--standalone", "--nproc-per-node", "2"], BY_ENVIRONMENT),
        (None, BY_ITSELF),
    ],
    ids=["farandole run", "torchrun", "by itself"],
)
def test_the_ranks_find_each_other(tmp_path, starter, text):
    script = Path(tmp_path, "train.py")
    script.write_text(text)
    where = [] if starter else [f"tcp://127.0.0.1:{port()}"]
    command = [sys.executable, *(["-m", *starter] if starter else []), str(script), *where]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    # Among what gloo says, perhaps; and the lines of two processes can mix.
    assert [done.stdout.count(f"rank {rank} of 2 by farandole") for rank in range(2)] == [1, 1], done.stdout
