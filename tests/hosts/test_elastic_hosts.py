"""Elastic jobs on several hosts: ranks are killed, hosts crash, are cut off, or are taken away; the rest goes on.

FARANDOLE_LONG=1: the side of a partition without the launcher ends by itself.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from host_jobs import Job, await_nothing, processes
from lab import Host, Lab

LONG = bool(os.environ.get("FARANDOLE_LONG"))
pytestmark = pytest.mark.timeout(120)
SOON_S = 15.0  # 4 to 6 s where the machine is not busy; an agent alone notices after 30 s

# Each step adds a sum of all ranks; all ranks hold the same number. "at" lines have a rank's clock. Arguments: steps,
# and of how many ranks the last world has: the last 20 steps wait for that, and for a first change.
PROGRAM = """
import os, sys, time, numpy as np
import farandole.numpy as hvd
from farandole import elastic
hvd.init()

steps, last_size = map(int, sys.argv[1:])

@elastic.run
def train(state):
    if state.began:
        print(f"resumed {hvd.rank()} of {hvd.size()} at {state.step} {time.monotonic()}", flush=True)
        state.changed = True
    state.began = True
    while state.step < steps:
        ones = hvd.allreduce(np.ones(100_000, np.float32), op=hvd.Sum, name="step")
        assert ones.min() == ones.max() == hvd.size()
        state.step += 1
        state.commit()
        if state.step == 20:
            print("ready", flush=True)
        time.sleep(0.002)
        while state.step >= steps - 20 and not (state.changed and hvd.size() == last_size):
            time.sleep(0.01)
            state.commit()

state = elastic.ObjectState(step=0, began=False, changed=False)
train(state)
print(f"ended {hvd.rank()} of {hvd.size()} at {state.step}", flush=True)
"""


@pytest.fixture
def begin(lab: Lab, launch: Callable, tmp_path: Path) -> Callable[..., tuple[list[Host], Job]]:
    """begin(2, steps, 3) starts an elastic job with two ranks on each host, and waits until all of them take steps. It
    ends as three ranks."""
    (tmp_path / "train.py").write_text(PROGRAM)

    def start(count: int, steps: int, last_size: int, min_np: int = 1, *options: object) -> tuple[list[Host], Job]:
        hosts = lab.hosts(count)
        spec = ",".join(f"{host.name}:2" for host in hosts)
        job = launch(hosts, "-H", spec, "--min-np", min_np, *options, "train.py", steps, last_size)
        job.await_lines(2 * count, "ready")
        return hosts, job

    return start


def resumed(out: str) -> list[float]:
    """The times at which ranks went on."""
    return [float(found) for found in re.findall(r"resumed .* at \d+ (.*)", out)]


def ended(out: str) -> list[str]:
    return sorted(re.findall(r"ended (\d of \d at \d+)", out))


@pytest.mark.parametrize("victim", [0, 3])
def test_the_others_go_on_when_a_rank_is_killed(begin: Callable, victim: int) -> None:
    hosts, job = begin(2, 300, 3, 1, "-x", "FARANDOLE_SILENCE_TIMEOUT=60")
    numbers = sorted(int(line.split()[0]) for line in processes(hosts[victim // 2], "python", "train.py", "300"))
    began = time.monotonic()
    hosts[victim // 2].run(["kill", "-KILL", str(numbers[-1 if victim else -2])])
    code, out, err = job.finish()
    assert code == 0 and "killed by SIGKILL" in err and "3 ranks go on" in err, err
    assert ended(out) == [f"{rank} of 3 at 300" for rank in range(3)]
    assert max(resumed(out)) - began < 30.0  # its connections have ended: nobody waits until it is silent for long
    await_nothing(hosts)


def test_a_lost_rank_is_replaced_on_its_host(begin: Callable) -> None:
    hosts, job = begin(2, 300, 4, 1, "--max-np", 4)
    (number, *_) = processes(hosts[1], "python", "train.py", "300")[-1].split()
    hosts[1].run(["kill", "-KILL", number])
    code, out, err = job.finish()
    assert code == 0 and "3 ranks go on" in err, err
    assert ended(out) == [f"{rank} of 4 at 300" for rank in range(4)]
    assert "[4 h1] ended 3 of 4" in out
    await_nothing(hosts)


def test_the_others_go_on_when_a_host_crashes(begin: Callable) -> None:
    hosts, job = begin(2, 300, 2)
    began = time.monotonic()
    hosts[1].blackhole()
    code, out, err = job.finish()
    assert code == 0 and "on h1" in err and "was lost" in err, err
    assert ended(out) == [f"{rank} of 2 at 300" for rank in range(2)]
    assert max(resumed(out)) - began < SOON_S
    hosts[1].heal()
    await_nothing(hosts, 40.0)


def test_the_side_of_the_launcher_goes_on_and_the_other_one_ends(lab: Lab, begin: Callable) -> None:
    hosts, job = begin(3, 400, 4)
    lab.split(hosts[:2], hosts[2:])
    began = time.monotonic()
    code, out, err = job.finish()
    assert code == 0 and "on h2" in err and "was lost" in err, err
    assert ended(out) == [f"{rank} of 4 at 400" for rank in range(4)]
    assert max(resumed(out)) - began < SOON_S
    await_nothing(hosts[:2])
    if not LONG:
        lab.join()  # so that the end of the connection reaches the agent at once
    await_nothing(hosts[2:], 40.0)  # else it has not heard of the launcher for 30 s


def test_ranks_of_a_host_that_is_taken_away_leave_together(begin: Callable) -> None:
    hosts, job = begin(2, 300, 2)
    agents = [line.split()[0] for line in processes(hosts[1], "python", "launch.agent")]
    hosts[1].run(["kill", "-TERM", agents[0]])
    code, out, err = job.finish()
    assert code == 0 and err.count("leaves after SIGTERM") == 2 and "was lost" not in err, err
    assert ended(out) == [f"{rank} of 2 at 300" for rank in range(2)]
    await_nothing(hosts)


def test_fewer_than_min_np_end_with_a_sentence(begin: Callable) -> None:
    hosts, job = begin(2, 100_000, 2, min_np=3)
    for line in processes(hosts[1], "python", "train.py", "100000"):
        if "farandole.launch" not in line:
            hosts[1].run(["kill", "-KILL", line.split()[0]])
    code, _, err = job.finish()
    assert code != 0 and "2 of 4 ranks are left (ranks 0, 1), and --min-np asks for 3" in err, err
    await_nothing(hosts)
