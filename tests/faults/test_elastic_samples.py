"""The samples of an elastic job whose ranks are killed and replaced: each once in a pass. With FARANDOLE_LONG=1."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

LONG = bool(os.environ.get("FARANDOLE_LONG"))
LIMIT_S = 120.0
RANKS, KILLS = 4, 20
pytestmark = pytest.mark.timeout(LIMIT_S + 60)

# Each rank writes the samples of a step before the step, under a name that only this call of the function has. The
# state has the steps that count: those of the commits from which the job has gone on.
PROGRAM = """
import json, os, sys, time, uuid
import numpy as np
import farandole.numpy as hvd
from farandole import elastic

hvd.init()
folder, length, batch_size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
print(f"pid {os.getpid()}", flush=True)
out = os.open(f"{folder}/{os.getpid()}.steps", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
data = elastic.Batches(range(length), batch_size, shuffle=True, seed=7)
state = elastic.ObjectState(data=data, epoch=0, total=np.zeros(1), steps=[])

@elastic.run
def train(state):
    call = hvd.broadcast_object(uuid.uuid4().hex)
    while True:
        data.set_epoch(state.epoch)
        if hvd.broadcast_object(os.path.exists(f"{folder}/stop"), name="stop") and not data.processed_num:
            break
        for number, indices in enumerate(data):
            step = f"{call} {state.epoch} {number}"
            place = hvd.rank(), hvd.size(), data.is_common
            os.write(out, (json.dumps([step, state.epoch, *place, indices]) + "\\n").encode())
            state.total += hvd.allreduce(np.full(1, float(len(indices))), op=hvd.Sum, name="step")
            state.steps.append(step)
            state.commit()
            time.sleep(0.003)
        state.epoch += 1

train(state)
if hvd.rank() == 0:
    with open(f"{folder}/state", "w") as file:
        json.dump([state.epoch, state.steps, state.total.item()], file)
"""

if LONG:

    @pytest.mark.parametrize("seed", range(10))
    def test_each_sample_is_seen_once_in_each_pass(tmp_path: Path, seed: int) -> None:
        dice = random.Random(seed)
        length, batch_size = dice.randint(40, 400), dice.choice([1, 3, 8])
        passes, steps, total = trained(tmp_path, dice, length, batch_size)
        seen, consumed = seen_in(tmp_path, steps)
        assert sorted(seen) == list(range(passes))
        for number, samples in seen.items():
            assert samples == Counter(range(length)), f"pass {number} of {passes}"
        assert total == consumed
        assert len({step.split()[0] for step in steps}) > KILLS / 2  # so many changes there were, at least


def trained(folder: Path, dice: random.Random, length: int, batch_size: int) -> tuple[int, list[str], float]:
    """Passes, steps and sum of the state that is left after ranks were killed at random, and others came for them."""
    script = folder / "train.py"
    script.write_text(PROGRAM)
    counts = ["-np", str(RANKS), "--min-np", "1", "--max-np", str(RANKS), "--blacklist-cooldown-range", "0.1", "0.2"]
    command = [sys.executable, "-m", "farandole.launch", "run", *counts, str(script), str(folder)]
    pids: list[int] = []
    lines: list[str] = []
    with subprocess.Popen(
        [*command, str(length), str(batch_size)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as job:
        reader = threading.Thread(target=read, args=(job, pids, lines), daemon=True)
        reader.start()
        watch = threading.Timer(LIMIT_S, job.kill)
        watch.start()
        try:
            kill_some(dice, pids, job, folder)
            (folder / "stop").touch()
            job.wait()
        finally:
            watch.cancel()
        reader.join()
    assert job.returncode == 0, "".join(lines[-50:])
    passes, steps, total = json.loads((folder / "state").read_text())
    return passes, steps, total


def read(job: subprocess.Popen[str], pids: list[int], lines: list[str]) -> None:
    assert job.stdout is not None
    for line in job.stdout:
        lines.append(line)
        if found := re.search(r"pid (\d+)$", line):
            pids.append(int(found[1]))


def kill_some(dice: random.Random, pids: list[int], job: subprocess.Popen[str], folder: Path) -> None:
    """Up to two at a time, newcomers that only start among them, while one is left that has the state."""
    killed: set[int] = set()
    while len(killed) < KILLS and job.poll() is None:
        time.sleep(dice.choice([0.0, 0.02, 0.3, 1.0]))
        living = sorted(set(pids) - killed)
        victims = dice.sample(living, min(dice.randint(1, 2), len(living)))
        files = [folder / f"{pid}.steps" for pid in set(living) - set(victims)]
        if any(file.exists() and file.stat().st_size for file in files):
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            killed.update(victims)


def seen_in(folder: Path, steps: list[str]) -> tuple[dict[int, Counter[int]], int]:
    """The samples of each pass in the steps that count, and how many the ranks have consumed in them."""
    written: dict[str, list[tuple[int, int, int, bool, list[int]]]] = defaultdict(list)
    for path in folder.glob("*.steps"):
        for line in path.read_text().splitlines():
            step, *rest = json.loads(line)
            written[step].append(tuple(rest))
    seen: dict[int, Counter[int]] = defaultdict(Counter)
    consumed = 0
    assert len(set(steps)) == len(steps)
    for step in steps:
        (number, _, size, is_common, first), *others = sorted(written[step])
        assert len(others) == size - 1, step
        shares = [first, *(indices for *_, indices in others)]
        consumed += sum(map(len, shares))
        assert all(shares)
        if is_common:
            assert all(share == first for share in shares)
            shares = shares[:1]
        for share in shares:
            seen[number].update(share)
    return dict(seen), consumed
