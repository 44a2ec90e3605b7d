"""Jobs that lose all their ranks and go on from the commits that FARANDOLE_COMMITS kept."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

LIMIT_S = 90
STEPS = 30
pytestmark = pytest.mark.timeout(2 * LIMIT_S)

# Arguments: the step after which rank 0 kills all ranks (0: none), where no earlier commit was found. A commit is kept
# in the background, so rank 0 waits for the first one.
PROGRAM = """
import os, pathlib, signal, sys, time, numpy as np
import farandole.numpy as hvd
from farandole import elastic

hvd.init()

@elastic.run
def train(state):
    is_new, pids = state.step == 0, hvd.allgather(np.array([os.getpid()])).tolist()
    print(f"begins at {state.step} with {hvd.size()}", flush=True)
    while state.step < 30:
        state.total = state.total + hvd.allreduce(np.ones(1000, np.float32), op=hvd.Average, name="step")
        state.step += 1
        state.commit()
        if is_new and state.step == int(sys.argv[1]) and hvd.rank() == 0:
            while not any(pathlib.Path(os.environ["FARANDOLE_COMMITS"]).glob("*.commit")):
                time.sleep(0.01)
            for pid in sorted(pids, key=os.getpid().__eq__):  # this process last
                os.kill(pid, signal.SIGKILL)

state = elastic.ObjectState(step=0, total=np.zeros(1000, np.float32))
train(state)
assert state.total.min() == state.total.max() == state.step == 30
print("ended", flush=True)
"""
Ended = tuple[int, str, str]
Start = Callable[..., Ended]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """start(["farandole", "run", ...], 10) runs the program after these words; rank 0 kills all ranks after step 10."""
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)

    def run(launcher: list[str], kill_after: int, **variables: str) -> Ended:
        done = subprocess.run(
            [sys.executable, "-m", *launcher, str(script), str(kill_after)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env={**os.environ, "FARANDOLE_COMMITS": str(tmp_path / "commits"), **variables},
        )
        return done.returncode, done.stdout, done.stderr

    return run


def ours(ranks: int, *options: str) -> list[str]:
    return ["farandole.launch", "run", "-np", str(ranks), *options]


def beginnings(out: str) -> set[tuple[int, int]]:
    """The steps and numbers of ranks at which training began."""
    return {(int(step), int(ranks)) for step, ranks in re.findall(r"begins at (\d+) with (\d+)", out)}


@pytest.mark.parametrize("options", [(), ("--min-np", "1")], ids=["fixed", "elastic"])
def test_the_same_command_goes_on_from_the_last_commit(start: Start, options: tuple[str, ...]) -> None:
    code, out, err = start(ours(3, *options), 10)
    assert code != 0 and "ended" not in out, err
    code, out, err = start(ours(2, *options), 10)  # also with another number of ranks
    assert (code, out.count("ended")) == (0, 2), err
    ((step, ranks),) = beginnings(out)
    assert 1 <= step <= 10 and ranks == 2
    code, out, err = start(ours(2, *options), 10)
    assert (code, beginnings(out)) == (0, {(STEPS, 2)}), err  # nothing is left to do


def test_torchrun_goes_on_after_its_restart(start: Start) -> None:
    launcher = ["torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1", "--rdzv-endpoint=127.0.0.1:0"]
    code, out, err = start([*launcher, "--rdzv-backend=c10d"], 10)
    assert (code, out.count("ended")) == (0, 2), err
    steps = sorted(step for step, _ in beginnings(out))
    assert steps[0] == 0 and 1 <= steps[1] <= 10, out


def test_a_damaged_commit_is_an_error_on_all_ranks(start: Start, tmp_path: Path) -> None:
    code, _, err = start(ours(1), 0)
    assert code == 0, err
    file = tmp_path / "commits" / "run-1.commit"
    file.write_bytes(file.read_bytes()[:-1])
    code, _, err = start(ours(2), 0)
    assert code == 1 and err.count("run-1.commit is damaged or no commit of this job; remove it to start") >= 2, err


def test_a_folder_that_only_some_ranks_know_is_an_error_on_all(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    job = {**os.environ, "FARANDOLE_JOB_ID": uuid.uuid4().hex}
    job |= {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}

    def begin(rank: int, given: Mapping[str, str]) -> subprocess.Popen[str]:
        place = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank)}
        command = [sys.executable, str(script), "0"]
        return subprocess.Popen(command, env={**job, **place, **given}, stderr=subprocess.PIPE, text=True)

    started = [begin(0, {"FARANDOLE_COMMITS": str(tmp_path / "commits")}), begin(1, {})]
    try:
        said = [each.communicate(timeout=LIMIT_S)[1] for each in started]
    finally:
        for each in started:
            each.kill()
    assert [each.returncode for each in started] == [1, 1], said
    assert all("FARANDOLE_COMMITS is set for rank 0 but not for rank 1" in each for each in said), said
