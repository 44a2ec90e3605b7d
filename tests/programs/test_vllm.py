"""vLLM's workers on Farandole. Fetches 1 GB, so that it runs only if it is named.

What users of vLLM and SGLang have reported of other communicators: workers on several hosts that hang (vllm#46716,
vllm#33628), servers on one host that meet in each other's memory (sglang#37179), and endless waits for a dead worker
(vllm#38862, vllm#42968).
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from farandole._start.environment import without_launchers
from lab import Lab, lab_fixture  # noqa: F401  (a fixture)
from published import installed

pytestmark = pytest.mark.timeout(1800)
HERE = Path(__file__).parent
LIMIT_S = 600
TIMEOUT_S = 6  # of vllm_worker.py


def environment():
    vllm = installed(*(HERE / "vllm.txt").read_text().split())
    return {**without_launchers(), "PYTHONPATH": str(vllm), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@contextmanager
def workers(task, size, **variables):
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, HERE / "vllm_worker.py", task]
    started = [
        subprocess.Popen(
            [*command, str(rank), str(size), place],
            env={**environment(), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        yield started
    finally:
        for each in started:
            each.kill()
            each.communicate()


def told(process):
    return process.communicate(timeout=LIMIT_S)[0]


def made(process):
    """Waits until its communicator is made; it is ours, and the platform is one for CPUs."""
    for line in process.stdout:
        if found := re.fullmatch(r"(\S+_communicator) True \d+\n", line):
            assert found[1] == "farandole_torch.vllm._communicator"
            return
    pytest.fail("the worker has ended")


def test_collectives_and_compiled_functions_of_two_servers_at_once():
    with workers("collectives", 2) as some, workers("collectives", 2, VLLM_TARGET_DEVICE="cpu") as others:
        for each in (*some, *others):
            text = told(each)
            assert text.endswith("done\n") and "farandole_torch.vllm._communicator True" in text


@pytest.mark.parametrize(
    ("signum", "words", "limit_s"), [(signal.SIGKILL, "rank 1", 3), (signal.SIGSTOP, "rank 1", 15)]
)
def test_a_worker_that_ends_or_stops_is_named_in_time(signum, words, limit_s):
    with workers("waiting", 3) as started:
        for each in started:
            made(each)
        time.sleep(1)
        began = time.monotonic()
        os.kill(started[1].pid, signum)
        for each in (started[0], started[2]):
            text = told(each)
            assert words in text.splitlines()[-1], text
            assert time.monotonic() - began < limit_s


def on_hosts(lab, task, size):
    hosts = lab.hosts(2)
    variables = {**environment(), "GLOO_SOCKET_IFNAME": "eth0"}
    command = [sys.executable, HERE / "vllm_worker.py", task]
    return [
        hosts[rank % 2].start(
            [*command, str(rank), str(size), f"{hosts[0].address}:29500"],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]


def test_workers_of_several_hosts(lab: Lab):
    for each in on_hosts(lab, "collectives", 3):
        text = told(each)
        assert text.endswith("done\n"), text


def test_a_worker_that_cannot_be_reached_is_named(lab: Lab):
    started = on_hosts(lab, "waiting", 2)
    for each in started:
        made(each)
    lab.hosts(2)[1].blackhole()
    began = time.monotonic()
    for rank, each in enumerate(started):
        text = told(each)
        assert f"rank {1 - rank}" in text.splitlines()[-1] and time.monotonic() - began < 30, text


def test_an_engine_generates_the_tokens_that_it_generates_with_its_own_communicator():
    script = HERE.parents[1] / "plugins" / "torch" / "benchmarks" / "inference.py"
    command = [sys.executable, script, "--rounds", "1", "--tokens", "16", "--hidden", "256", "--layers", "2"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[-2] for line in done.stdout.splitlines() if "tokens/s" in line] == ["equal"] * 3
