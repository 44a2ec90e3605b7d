"""The end of a job, by whatever cause: the right exit code, in time, and nothing left."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

LONG_BEFORE_THEY_END_S = 30.0  # whatever ranks are still there sleep for 60 s

# A rank with everything that is hard to end: itself and a grandchild in a session of its own ignore all that they can.
STUBBORN = """
import os, signal, sys, time
for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(signum, signal.SIG_IGN)
if sys.argv[1:] == ["says what it is told"]:
    signal.signal(signal.SIGINT, lambda *_: os.write(1, b"told\\n"))
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(1, b"ready\\n")
        time.sleep(60)
    time.sleep(60)
while sys.argv[1:] == [os.environ["FARANDOLE_RANK"]]:
    if os.path.exists("fail"):
        os._exit(3)
    time.sleep(0.01)
time.sleep(60)
"""


def wait_for_ready(job: Any, ranks: int) -> None:
    for _ in range(ranks):
        assert job.read_line().endswith(b"ready\n")


@pytest.mark.parametrize(
    ("signum", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)],
)
def test_a_signal_reaches_the_ranks_and_is_the_exit_code(launch: Callable, signum: int, code: int) -> None:
    text = f"trap 'echo told; exit 0' {signum}; echo ready; while :; do sleep 0.05; done"
    job = launch("-np", 2, "sh", "-c", text)
    wait_for_ready(job, 2)
    os.kill(job.pid, signum)
    result = job.finish()
    assert result.code == code
    assert sorted(result.out.splitlines()) == ["[0] told", "[1] told"]
    job.wait_until_nothing_is_left()


def test_ranks_may_end_well_within_the_grace(launch: Callable) -> None:
    text = "trap 'sleep 0.5; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    job = launch("-np", 2, "sh", "-c", text)
    wait_for_ready(job, 2)
    job.process.terminate()
    assert sorted(job.finish().out.splitlines()) == ["[0] saved", "[1] saved"]


def test_a_program_behind_a_wrapper_script_may_end_well_too(launch: Callable) -> None:
    program = "trap 'sleep 1.5; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    job = launch("-np", 1, "sh", "-c", 'sh -c "$1"; true', "sh", program)
    wait_for_ready(job, 1)
    job.process.terminate()
    result = job.finish()
    assert (result.code, result.out) == (143, "[0] saved\n")


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_who_ignores_signals_is_killed_after_the_grace(
    launch: Callable, script: Callable, signum: int, code: int
) -> None:
    job = launch("-np", 2, script(STUBBORN), env={"FARANDOLE_GRACE_SECONDS": "0.5"})
    wait_for_ready(job, 2)
    began = time.monotonic()
    os.kill(job.pid, signum)
    assert job.finish().code == code
    assert 0.5 <= time.monotonic() - began < 5
    job.wait_until_nothing_is_left()


def test_a_second_ctrl_c_kills_at_once(launch: Callable, script: Callable) -> None:
    job = launch("-np", 2, script(STUBBORN), "says what it is told", env={"FARANDOLE_GRACE_SECONDS": "50"})
    wait_for_ready(job, 2)
    began = time.monotonic()
    os.kill(job.pid, signal.SIGINT)
    assert sorted(job.read_line() for _ in range(2)) == [b"[0] told\n", b"[1] told\n"]
    time.sleep(0.3)  # what comes within 0.2 s of the first counts as the same key
    os.kill(job.pid, signal.SIGINT)
    assert job.finish().code == 130
    assert time.monotonic() - began < LONG_BEFORE_THEY_END_S
    job.wait_until_nothing_is_left()


def test_ctrl_c_at_a_terminal_reaches_each_rank_once(launch: Callable) -> None:
    ours, theirs = pty.openpty()

    def own_the_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    # Each stays for a while in which it could be told again.
    text = (
        "trap 'echo told >&2; told=1' INT; echo ready; while test ! $told; do sleep 0.05; done; sleep 0.7 & wait; wait"
    )
    job = launch("-np", 2, "sh", "-c", text, stdin=theirs, preexec_fn=own_the_terminal)
    wait_for_ready(job, 2)
    os.write(ours, b"\x03")
    result = job.finish()
    os.close(ours)
    os.close(theirs)
    assert result.code == 130
    assert sorted(result.err.splitlines()[:-1]) == ["[0] told", "[1] told"]


def test_a_failure_ends_the_stubborn_within_the_grace(launch: Callable, script: Callable, tmp_path: Path) -> None:
    job = launch("-np", 3, script(STUBBORN), 1, env={"FARANDOLE_GRACE_SECONDS": "3"})
    wait_for_ready(job, 3)
    began = time.monotonic()
    (tmp_path / "fail").touch()
    result = job.finish()
    assert result.code == 3 and "rank 1 on localhost" in result.err
    assert 2.7 <= time.monotonic() - began < LONG_BEFORE_THEY_END_S  # killed after 0.9 of the grace
    job.wait_until_nothing_is_left()


def test_what_the_ranks_left_running_ends_with_the_job(launch: Callable) -> None:
    job = launch("-np", 2, "sh", "-c", "setsid sleep 60 & true")
    assert job.finish().code == 0
    job.wait_until_nothing_is_left()


@pytest.mark.parametrize("victim", ["launcher", "inner"])
def test_nothing_is_left_when_the_launcher_is_killed(launch: Callable, script: Callable, victim: str) -> None:
    job = launch("-np", 3, script(STUBBORN))
    wait_for_ready(job, 3)
    assert len(job.left()) == 2 + 3 * 3
    os.kill(job.pid if victim == "launcher" else job.inner.pid, signal.SIGKILL)
    job.wait_until_nothing_is_left()
    assert job.process.wait(15) == (-9 if victim == "launcher" else 137)


def test_the_ranks_die_even_when_both_processes_of_the_launcher_do(launch: Callable) -> None:
    job = launch("-np", 2, "sh", "-c", "echo ready; exec sleep 60")
    wait_for_ready(job, 2)
    both = [job.inner.pid, job.pid]
    job.process.send_signal(signal.SIGSTOP)  # so that it cannot clean up in between
    for pid in both:
        os.kill(pid, signal.SIGKILL)
    job.wait_until_nothing_is_left()


def test_a_killed_launcher_does_not_touch_children_it_had_before(launch: Callable) -> None:
    program = (
        "import os, subprocess; server = subprocess.Popen(['sleep', '60']); print(server.pid, flush=True); "
        "from farandole.launch.cli import main; main(['run', '-np', '1', 'sh', '-c', 'echo ready; sleep 60'])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        server = psutil.Process(int(process.stdout.readline()))
        process.stdout.readline()
        (inner,) = (one for one in psutil.Process(process.pid).children() if one.pid != server.pid)
        inner.kill()
        assert process.wait(15) == 137
        assert server.is_running() and server.status() != psutil.STATUS_ZOMBIE
        server.kill()


def test_stop_and_continue_reach_the_ranks(launch: Callable) -> None:
    job = launch("-np", 2, "sh", "-c", "echo ready; exec sleep 60")
    wait_for_ready(job, 2)
    ranks = job.inner.children()

    def wait_for(status: str) -> None:
        deadline = time.monotonic() + 15
        while any(process.status() != status for process in (*ranks, psutil.Process(job.pid))):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    os.kill(job.pid, signal.SIGTSTP)
    wait_for(psutil.STATUS_STOPPED)
    os.kill(job.pid, signal.SIGCONT)
    wait_for(psutil.STATUS_SLEEPING)
    job.process.terminate()
    assert job.finish().code == 143


def test_user_signals_are_passed_on_and_end_nothing(launch: Callable) -> None:
    text = "trap 'echo saving; touch saved' USR1; echo ready; while test ! -e saved; do sleep 0.02; done; exit 4"
    job = launch("-np", 1, "sh", "-c", text)
    wait_for_ready(job, 1)
    os.kill(job.pid, signal.SIGUSR1)
    result = job.finish()
    assert (result.code, result.out) == (4, "[0] saving\n")


def test_nohup_holds_for_the_whole_job(launch: Callable) -> None:
    program = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", sys.executable, "-m", "farandole.launch", "run"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [*program, "-np", "1", "sh", "-c", "echo ready; sleep 0.4; echo end"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"[0] ready\n"
        process.send_signal(signal.SIGHUP)
        assert process.communicate(timeout=60)[0] == b"[0] end\n"
        assert process.returncode == 0
