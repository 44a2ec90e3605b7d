"""`farandole run` with a host that is reached by a stand-in for ssh: this machine. a lab has others."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

SSH = """#!/bin/sh
# Runs the last word, as sshd's shell does.
for word; do :; done
exec env -i HOME="$HOME" PATH="$PATH" TEST_LAUNCH_MARK="$TEST_LAUNCH_MARK" sh -c "$word"
"""


@pytest.fixture
def ssh(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Makes a script stand in for ssh."""

    def stand_in(text: str = SSH) -> dict[str, str]:
        script = tmp_path / "ssh"
        script.write_text(text)
        script.chmod(0o700)
        return {"FARANDOLE_SSH": str(script)}

    return stand_in


def test_ranks_of_another_host_are_as_those_of_this_one(run: Callable, ssh: Callable, tmp_path: Path) -> None:
    names = "RANK LOCAL_RANK FARANDOLE_CROSS_SIZE WORLD_SIZE MINE PWD"
    code = f"import os, sys; e = dict(os.environ, PWD=os.getcwd()); print(*(e[n] for n in '{names}'.split()))"
    result = run("-H", "there:2", "-x", "MINE=x y", "python", "-c", f"{code}; sys.exit(3 * int(e['RANK']))", env=ssh())
    assert sorted(result.out.splitlines()) == [f"[{rank} there] {rank} {rank} 1 2 x y {tmp_path}" for rank in (0, 1)]
    assert result.code == 3
    assert "rank 1 on there" in result.err and "failed first: exit code 3" in result.err


def test_lines_of_a_job_file_run_on_another_host_one_after_the_other(
    run: Callable, ssh: Callable, tmp_path: Path
) -> None:
    lines = "['touch one.$FARANDOLE_RANK', 'ls one.* | wc -l', 'exit $((FARANDOLE_RANK * 5))', echo no]"
    (tmp_path / "job.yml").write_text(f"project: a\ntrain:\n  workers: 2\n  run: {lines}\n")
    result = run("-f", "job.yml", "-H", "there:2", env=ssh())
    assert sorted(result.out.splitlines()) == ["[0 there] 2", "[1 there] 2"]
    assert result.code == 5 and "line 3 of 4, " in result.err and "line 4 was not started." in result.err


def test_secrets_stand_in_no_command_line(launch: Callable, ssh: Callable) -> None:
    job = launch("-H", "there:1", "-x", "TOKEN=verysecret", "sleep", "20", env=ssh())
    try:
        deadline = time.monotonic() + 20
        while not ranks_of(job) and time.monotonic() < deadline:
            time.sleep(0.05)
        words = [word for line in job.of_each(psutil.Process.cmdline) for word in line]
        assert any("launch.agent.host_agent" in word for word in words)
        (rank,) = ranks_of(job)
        secret = Path(rank.environ()["FARANDOLE_KEY_FILE"]).read_bytes()
        told = words + [value for each in job.of_each(psutil.Process.environ) for value in each.values()]
        assert len(secret) == 32 and not any(secret.hex() in each for each in told)
        assert not any("verysecret" in each for each in words if each != "TOKEN=verysecret")
    finally:
        job.process.terminate()
        job.finish()


def test_the_ranks_there_have_the_launchers_grace(launch: Callable, ssh: Callable) -> None:
    code = "trap 'sleep 1; echo ended well; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    theirs = SSH.replace("env -i", "env -i FARANDOLE_GRACE_SECONDS=0.1")
    job = launch("-H", "there:1", "sh", "-c", code, env={**ssh(theirs), "FARANDOLE_GRACE_SECONDS": "20"})
    assert b"ready" in job.read_line()
    job.process.terminate()
    assert "ended well" in job.finish().out


def ranks_of(job: Any) -> list[psutil.Process]:
    return [
        each for each, words in job.of_each(lambda each: (each, each.cmdline())) if "".join(words[:1]).endswith("sleep")
    ]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'ssh: Could not resolve hostname there: Name or service not known' >&2; exit 255", "there is no name"),
        ("echo 'Host key verification failed.' >&2; exit 255", "ssh there once"),
        ("echo 'me@there: Permission denied (publickey).' >&2; exit 255", "ssh-copy-id there"),
        ("exit 0", "there: ssh ended with exit code 0"),
        ("yes", "prints without end instead of greeting; look for what its shell prints"),
        ("printf '\\n\\0farandole-agent\\0\\n'; printf 'GET / HTTP/1.1 400 what'", "does not answer like an agent"),
    ],
)
def test_a_host_without_an_agent_is_one_sentence(run: Callable, ssh: Callable, script: str, words: str) -> None:
    result = run("-H", "there:1", "true", env=ssh(f"#!/bin/sh\n{script}\n"))
    assert result.code == 2
    assert words in result.err and result.err.count("\n") == 1 and result.took_s < 10


def test_a_missing_ssh_python_folder_or_command_is_one_sentence(run: Callable, ssh: Callable, tmp_path: Path) -> None:
    result = run("-H", "there:1", "true", env={"FARANDOLE_SSH": "/no/ssh"})
    assert "cannot start /no/ssh" in result.err and result.code != 0
    result = run("-H", "there:1", "true", env={"FARANDOLE_SSH": "ssh -F '/x"})
    assert "FARANDOLE_SSH" in result.err and "no closing quotation" in result.err and result.code == 2
    result = run("-H", "there:1", "--python", "/no/python", "true", env=ssh())
    assert result.code == 2 and "there cannot run /no/python; name the interpreter there with --python" in result.err
    result = run("-H", "there:1", "no-such-command", env=ssh())
    assert result.code == 127 and "there: no-such-command: no such command in PATH" in result.err
    gone = tmp_path / "gone"
    gone.mkdir()
    removing = ssh(SSH.replace("exec env", f"rmdir {gone}; exec env"))
    result = run("-H", "there:1", "sh", "-c", "true", env=removing, cwd=gone)
    assert result.code == 2 and f"there: it has no folder {gone}" in result.err


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("whom", ["launcher", "inner", "agent", "agent's inner", "rank"])
def test_whoever_is_killed_leaves_nothing(launch: Callable, ssh: Callable, whom: str, signum: int) -> None:
    code = "import time; print('ready', flush=True); time.sleep(60)"
    job = launch("-H", "there:2", sys.executable, "-c", code, env=ssh())
    for _ in range(2):
        assert b"ready" in job.read_line()
    os.kill(pid_of(job, whom), signum)
    code = job.finish().code
    assert code == (-9 if (whom, signum) == ("launcher", signal.SIGKILL) else 128 + signum)
    assert job.wait_until_nothing_is_left(10) < 10


def pid_of(job: Any, whom: str) -> int:
    if whom in ("launcher", "inner"):
        return job.pid if whom == "launcher" else job.inner.pid
    (agent,) = job.inner.children()  # the stand-in has become it
    (inner,) = agent.children()
    return {"agent": agent, "agent's inner": inner}.get(whom, inner.children()[0]).pid
