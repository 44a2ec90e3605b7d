"""`farandole.run` on several hosts: functions, results and exceptions that travel; what is left when somebody ends.

FARANDOLE_LONG=1: large functions and results, kills, too.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from host_jobs import LIMIT_S, await_nothing
from lab import Host, Lab

LONG = bool(os.environ.get("FARANDOLE_LONG"))
pytestmark = pytest.mark.timeout(300)

User = Callable[..., Any]


@pytest.fixture
def user(lab: Lab, tmp_path: Path) -> Iterator[User]:
    """user(hosts, "...") is a process that runs a script with that text on the first of the hosts."""
    started: list[Any] = []
    (tmp_path / "tmp").mkdir()

    def start(hosts: list[Host], text: str) -> Any:
        (tmp_path / "train.py").write_text(f"import farandole, os, socket, sys, threading, time\n{text}")
        words = ["env", f"FARANDOLE_SSH={' '.join(lab.ssh_command)}", f"TMPDIR={tmp_path / 'tmp'}"]
        words += ["FARANDOLE_RUN_HOSTS=nowhere:7", "FARANDOLE_RUN_DRY_RUN=1", sys.executable, "train.py"]
        started.append(hosts[0].start(words, cwd=tmp_path, stdin=-3, stdout=-1, stderr=-1, text=True))
        return started[-1]

    yield start
    for each in started:
        if each.poll() is None:
            each.kill()
        each.communicate()


def finish(process: Any, hosts: list[Host], tmp_path: Path) -> tuple[str, str]:
    """stdout and stderr of a script that ended well and has left nothing."""
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    await_nothing(hosts)
    assert list((tmp_path / "tmp").iterdir()) == []
    return out, err


TRAVELS = """
factor = 3
class Own:
    def __init__(self, value): self.value = value
def train(base, *, step):
    farandole.init()
    print("on", socket.gethostname())
    print("careful", file=sys.stderr)
    words = [os.readlink(f"/proc/{os.getppid()}/fd/{fd}") for fd in os.listdir(f"/proc/{os.getppid()}/fd")]
    argv = open("/proc/self/cmdline").read().split("\\0")[-3:-1]
    return Own((farandole.rank(), socket.gethostname(), farandole.allgather_object(base + step * farandole.rank()))), \\
        [word for word in words if word.startswith(("/tmp", "/memfd:farandole-call"))], argv[0].startswith("/proc/")
results = farandole.run(train, (10,), {"step": factor}, np=4, hosts="h0:2,h1:2")
for own, files, is_path in results:
    print("got", *own.value, type(own) is Own, files, is_path)
open("hostfile", "w").write("h1 slots=2\\n")
def fail():
    farandole.init()
    if farandole.rank() == 1:
        raise KeyError("no such batch")
    farandole.barrier()
try: farandole.run(fail, np=2, hostfile="hostfile")
except KeyError as error: print("raised", error, *(word in str(error.__cause__) for word in ("rank 1 of 2", "in fail")))
"""
UNFIT = """
try: farandole.run(threading.Lock, np=2, hosts="h0:1,h1:1")
except TypeError as error: print(error)
"""


def test_a_function_its_results_and_its_exceptions_travel(lab: Lab, user: User, tmp_path: Path) -> None:
    hosts = lab.hosts(2)
    out, err = finish(user(hosts, TRAVELS), hosts, tmp_path)
    said, files = [10, 13, 16, 19], ["/memfd:farandole-call (deleted)"]
    lines = out.splitlines()
    assert sorted(lines[:4]) == [f"[{rank} h{rank // 2}] on h{rank // 2}" for rank in range(4)]
    assert lines[4:8] == [f"got {rank} h{rank // 2} {said} True {files} True" for rank in range(4)]
    assert lines[8:9] == ["raised 'no such batch' True True"]
    assert sorted(err.splitlines()) == [f"[{rank} h{rank // 2}] careful" for rank in range(4)]


LARGE = """
data = os.urandom(100 << 20)
print(farandole.run(lambda mine: mine[::-1], (data,), np=4, hosts="h0:2,h1:2") == [data[::-1]] * 4)
"""

SLEEPS = """
def sleep():
    farandole.init()
    print("ready", os.getpid(), flush=True)
    time.sleep(60)
try: farandole.run(sleep, np=4, hosts="h0:2,h1:2")
except KeyboardInterrupt: print("interrupted")
except farandole.FarandoleError as error: print(error)
"""

ELASTIC = """
def train():
    farandole.init()
    mine = int(os.environ.get("FARANDOLE_JOINS") or farandole.rank())
    @farandole.elastic.run
    def run(state):
        while state.left:
            size = len(farandole.allgather_object(0))
            state.step += 1
            state.left -= state.step > 5 and size == 4
            if state.step == 5 and mine == 3:
                os.kill(os.getpid(), 9)
            state.commit()
            time.sleep(0.01)
    run(farandole.elastic.ObjectState(step=0, left=10))
    return mine, farandole.rank(), farandole.size(), socket.gethostname()
import farandole.elastic
print(farandole.run(train, np=4, hosts="h0:2,h1:2", min_np=2, max_np=4))
"""

if LONG:

    def test_a_newcomer_on_another_host_calls_the_function(lab: Lab, user: User, tmp_path: Path) -> None:
        hosts = lab.hosts(2)
        out, err = finish(user(hosts, ELASTIC), hosts, tmp_path)
        assert out == "[(0, 0, 4, 'h0'), (1, 1, 4, 'h0'), (2, 2, 4, 'h1'), (4, 3, 4, 'h1')]\n"
        assert "rank 3 on h1" in err and "3 ranks go on" in err

    def test_a_result_that_cannot_be_pickled_is_named(lab: Lab, user: User, tmp_path: Path) -> None:
        hosts = lab.hosts(2)
        out, _ = finish(user(hosts, UNFIT), hosts, tmp_path)
        assert out.startswith("the result of rank ") and "of type lock, cannot be pickled" in out

    def test_large_functions_and_results_travel(lab: Lab, user: User, tmp_path: Path) -> None:
        hosts = lab.hosts(2)
        assert finish(user(hosts, LARGE), hosts, tmp_path)[0] == "True\n"

    @pytest.mark.parametrize("whom", ["caller", "caller, by SIGKILL", "rank"])
    def test_whoever_ends_leaves_nothing(lab: Lab, user: User, tmp_path: Path, whom: str) -> None:
        hosts = lab.hosts(2)
        process = user(hosts, SLEEPS)
        ready = [process.stdout.readline().split() for _ in range(4)]
        if whom == "rank":
            hosts[1].run(["kill", "-KILL", next(number for _, host, _, number in ready if host == "h1]")])
        else:
            process.send_signal(9 if "SIGKILL" in whom else 2)
        began = time.monotonic()
        out, _ = process.communicate(timeout=LIMIT_S)
        await_nothing(hosts)
        assert time.monotonic() - began < 10 and list((tmp_path / "tmp").iterdir()) == []
        words = {"caller": "interrupted\n", "rank": " on h1 (pid"}.get(whom, "")
        assert words in out
