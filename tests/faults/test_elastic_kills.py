"""Ranks of an elastic job are killed while the others recover from a kill. FARANDOLE_LONG=1: 200 times."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LONG = bool(os.environ.get("FARANDOLE_LONG"))
LIMIT_S = 60.0
RANKS, STEPS = 4, 150
pytestmark = pytest.mark.timeout(LIMIT_S + 30)

PROGRAM = """
import os, sys, time, numpy as np
import farandole.numpy as hvd
from farandole import elastic
hvd.init()
print(f"pid {hvd.rank()} {os.getpid()}", flush=True)
parameters = np.zeros(200_000, np.float32)

@elastic.run
def train(state):
    while state.step < int(sys.argv[1]):
        state.parameters += hvd.allreduce(np.ones_like(parameters), op=hvd.Average, name="step")
        state.step += 1
        state.commit()
        if state.step == 20:
            print("ready", flush=True)
        time.sleep(0.001)

state = elastic.ObjectState(step=0, parameters=parameters)
train(state)
assert state.parameters.min() == state.parameters.max() == state.step
print(f"ended {hvd.rank()} of {hvd.size()} at {state.step}", flush=True)
"""


@pytest.mark.parametrize("seed", range(200 if LONG else 4))
def test_the_rest_goes_on_when_more_are_killed_during_recovery(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    victims = draw.sample(range(RANKS), draw.choice([2, 2, 3]))
    pauses = [draw.uniform(0.0, 0.04) for _ in victims[1:]]
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    command = [sys.executable, "-m", "farandole.launch", "run", "-np", str(RANKS), "--min-np", "1", str(path)]
    recordings = tmp_path / "recordings"
    variables = {**os.environ, "FARANDOLE_FLIGHT_RECORDER": str(recordings)}
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, str(STEPS)], stdout=pipe, stderr=pipe, text=True, env=variables) as job:
        assert job.stdout is not None
        pids, ready = {}, 0
        while ready < RANKS:
            line = job.stdout.readline()
            assert line, job.stderr and job.stderr.read()
            ready += "ready" in line
            if found := re.search(r"pid (\d) (\d+)", line):
                pids[int(found[1])] = int(found[2])
        for victim, pause_s in zip(victims, [0.0, *pauses], strict=True):
            time.sleep(pause_s)
            os.kill(pids[victim], signal.SIGKILL)
        try:
            out, err = job.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            job.kill()
            out, err = job.communicate()
            pytest.fail(f"hangs after {victims} were killed, {pauses} s apart: {err}")
    left = RANKS - len(victims)
    assert job.returncode == 0, f"{victims}, {pauses}: {err}"
    assert sorted(re.findall(r"ended (.*)", out)) == [f"{rank} of {left} at {STEPS}" for rank in range(left)], err
    named = {int(rank) for rank in re.findall(r"rank (\d) on localhost \(pid \d+\) ended: killed by SIGKILL", err)}
    assert named == set(victims), err
    assert not list(recordings.iterdir()), "recordings are left"
