"""The launcher's words about CUDA_VISIBLE_DEVICES."""

import os
import subprocess
import sys

import pytest
from farandole.launch.gpus import count, sharing


@pytest.mark.parametrize("listed", [None, "", "-1", "0,1,2", "3,2,1,0", "GPU-1,GPU-2,GPU-3"])
def test_enough_gpus_or_none_are_no_matter(listed):
    base = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    assert sharing(base, 3) == ""


@pytest.mark.parametrize(("listed", "said"), [("1", "shows one GPU to all 3 ranks"), ("0,1", "shows 2 GPUs to all 3")])
def test_fewer_gpus_than_ranks_are_explained(listed, said):
    sentence = sharing({"CUDA_VISIBLE_DEVICES": listed}, 3)
    assert said in sentence
    assert "local_rank()" in sentence


@pytest.mark.parametrize(("listed", "number"), [("0,1", 2), ("", 0), ("-1", 0), ("2,-1,3", 1), ("GPU-1,GPU-2", 2)])
def test_gpus_that_are_listed_are_counted(listed, number):
    assert count({"CUDA_VISIBLE_DEVICES": listed}) == number


def test_without_a_list_the_devices_are_counted(tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia0x"):
        (tmp_path / name).touch()
    assert count({}, tmp_path) == 3


def test_the_command_says_it_and_goes_on():
    command = [sys.executable, "-m", "farandole.launch", "run", "-np", "2", sys.executable, "-c", "print('fine')"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert sorted(done.stdout.splitlines()) == ["[0] fine", "[1] fine"]
    assert "farandole: CUDA_VISIBLE_DEVICES=1 shows one GPU to all 2 ranks on this host" in done.stderr
