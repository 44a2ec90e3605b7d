"""Ranks are killed at random instants, with children alive: the others say who it was, nothing hangs, nothing is left.

FARANDOLE_LONG=1 kills 1,000 ranks and judges how soon the others know; FARANDOLE_SEED chooses others. One job alone:
`python tests/faults/kills.py 1 SEED NUMBER`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LONG = bool(os.environ.get("FARANDOLE_LONG"))
JOBS = 1000 if LONG else 20
SEED = os.environ.get("FARANDOLE_SEED", "1")
P99_MS = 200.0  # judged where there are enough kills for a percentile
MOST_MS = 5000.0

pytestmark = pytest.mark.timeout(1800 if LONG else 120)


def kill(program, jobs, seed):
    """The outcomes of so many jobs, all without problems, that a program prints."""
    script = Path(__file__).with_name(program)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", script, str(jobs), seed]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(outcomes) == jobs
    wrong = [f"{program} 1 {seed} {each['job']['number']}: {each}" for each in outcomes if each["problems"]]
    assert not wrong, "\n".join(wrong[:10])
    return outcomes


def test_every_survivor_names_the_killed_rank_and_nothing_is_left():
    outcomes = kill("kills.py", JOBS, SEED)
    times = sorted(latency for each in outcomes for latency in each["latencies_ms"])
    assert len(times) == sum(each["job"]["ranks"] - 1 for each in outcomes)
    p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
    print(f"{JOBS} kills, {len(times)} survivors: p50 {p50} ms, p99 {p99} ms, most {times[-1]} ms")
    assert times[-1] < MOST_MS
    if LONG:
        assert p99 < P99_MS
