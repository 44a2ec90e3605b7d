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


def fails(process, rank, began, limit_s):
    """The worker raises an error that names this rank, so many seconds after `began` at most."""
    text = told(process)
    found = re.search(rf"^(\d+\.\d+) .*\brank {rank} ", text, re.MULTILINE)
    assert found and float(found[1]) - began < limit_s, text


@pytest.mark.parametrize(("signum", "limit_s"), [(signal.SIGKILL, 5), (signal.SIGSTOP, TIMEOUT_S + 10)])
def test_a_worker_that_ends_or_stops_is_named_in_time(signum, limit_s):
    with workers("waiting", 3) as started:
        for each in started:
            made(each)
        time.sleep(1)
        began = time.time()
        os.kill(started[1].pid, signum)
        fails(started[0], 1, began, limit_s)
        fails(started[2], 1, began, limit_s)


def on_hosts(lab, task, size):
    hosts = lab.hosts(2)
    variables = {**environment(), "GLOO_SOCKET_IFNAME": "eth0"}
    command = [sys.executable, HERE / "vllm_worker.py", task]
    return [
        hosts[rank % 2].start(
            [*command, str(rank), str(size), f"{hosts[0].address}:29500"],
            env={**variables, "VLLM_HOST_IP": hosts[rank % 2].address},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]


def test_workers_of_several_hosts(lab: Lab):
    texts = [told(each) for each in on_hosts(lab, "collectives", 3)]
    assert [text.endswith("done\n") for text in texts] == [True] * 3, texts


def test_a_worker_that_cannot_be_reached_is_named(lab: Lab):
    started = on_hosts(lab, "waiting", 2)
    for each in started:
        made(each)
    began = time.time()
    lab.hosts(2)[1].blackhole()
    fails(started[0], 1, began, 20)
    fails(started[1], 0, began, 20)


def test_an_engine_generates_the_tokens_that_it_generates_with_its_own_communicator():
    script = HERE.parents[1] / "plugins" / "torch" / "benchmarks" / "inference.py"
    command = [sys.executable, script, "--rounds", "1", "--tokens", "16", "--hidden", "256", "--layers", "2"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[-2] for line in done.stdout.splitlines() if "tokens/s" in line] == ["equal"] * 3
