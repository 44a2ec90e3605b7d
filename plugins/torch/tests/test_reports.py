"""Reports of hangs with other backends, as tests of ours. Each names the report."""

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import farandole_torch as hvd
import pytest
import torch
import torch.distributed as dist
from farandole.testing import RanksFailed, spawn
from versions import needs

pytestmark = [pytest.mark.timeout(180), needs(2, 7, "what the backend needs")]


def dies(when):
    """Rank 1 is killed; the others write down what they get, and after how long."""

    def on_each_rank(folder):
        dist.init_process_group("farandole", init_method="farandole://")
        group = dist.new_group()
        if when == "in a loop":
            for _ in range(10):
                dist.all_reduce(torch.ones(2), group=group)
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        begun = time.monotonic()
        with pytest.raises(hvd.PeerLostError) as raised:
            for _ in range(1000):
                dist.all_reduce(torch.ones(2), group=group)
        Path(folder, str(dist.get_rank())).write_text(f"{time.monotonic() - begun} {raised.value}")

    return on_each_rank


@pytest.mark.parametrize("when", ["before the first call", "in a loop"])
def test_a_killed_rank_is_named_by_all_others(tmp_path, when):
    """gloo#520: a peer dies before anybody has talked to it. vllm#38862: one dead rank keeps all others waiting."""
    with pytest.raises(RanksFailed):
        spawn(3, dies(when), str(tmp_path), timeout=90)
    for rank in (0, 2):
        seconds, _, text = (tmp_path / str(rank)).read_text().partition(" ")
        assert float(seconds) < 30 and "rank 1 (" in text


def stops():
    """vllm#42968: a worker that is busy with something else keeps the others for half an hour."""
    rank = dist.get_rank() if dist.is_initialized() else None
    dist.init_process_group("farandole", init_method="farandole://", timeout=timedelta(seconds=1))
    rank = dist.get_rank()
    if rank != 1:
        begun = time.monotonic()
        with pytest.raises(hvd.DeadlineError, match=r"on rank \d for rank 1 \("):
            dist.broadcast_object_list([None], src=1)
        assert 0.9 < time.monotonic() - begun < 20
        return
    time.sleep(4)


def test_a_busy_rank_is_named_within_the_groups_timeout():
    spawn(3, stops, timeout=90)


SCRIPT = """
import torch
import torch.distributed as dist

dist.init_process_group("farandole")
works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(10)]
futures = [work.get_future().then(lambda future: future.value()) for work in works]
works[-1].wait()  # a rank that ends before would rightly be an error on the other one
print("over", flush=True)
"""


def test_a_program_that_destroys_nothing_ends(tmp_path):
    """pytorch#190489: a hang at exit."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0 and done.stdout.count("over") == 2, done.stderr


RESTARTED = """
import os, sys
import torch
import torch.distributed as dist

dist.init_process_group("farandole")
tensor = torch.ones(3)
dist.all_reduce(tensor)
assert tensor.tolist() == [2.0] * 3
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
    os._exit(3)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
    dist.barrier()
    print("restarted", flush=True)
    dist.destroy_process_group()
else:
    dist.barrier()
"""


def test_torchrun_restarts(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(RESTARTED)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    done = subprocess.run([*command, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout.count("restarted") == 2, done.stderr


def made_anew(folder):
    """Groups, and the world that the first of them has begun, end and begin again, also with other ranks."""
    rank = int(os.environ["RANK_OF_TEST"])
    for attempt in range(3):
        size = 2 if attempt == 1 else 3
        if rank >= size:
            continue
        place = {"rank": rank, "world_size": size, "init_method": f"file://{folder}/{attempt}"}
        dist.init_process_group("farandole", **place)
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [float(size)] * 2
        dist.destroy_process_group()
        assert not hvd.is_initialized()


def test_a_group_can_be_made_anew(tmp_path):
    code = f"import test_reports; test_reports.made_anew({str(tmp_path)!r})"
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    variables = [{**os.environ, "PYTHONPATH": path, "RANK_OF_TEST": str(rank)} for rank in range(3)]
    ranks = [subprocess.Popen([sys.executable, "-c", code], env=each) for each in variables]
    assert [each.wait(timeout=90) for each in ranks] == [0, 0, 0]
