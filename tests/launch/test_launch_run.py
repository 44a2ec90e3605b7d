"""`farandole run` as its users meet it: commands, usage, exit codes, stdin, several jobs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from farandole.launch import local
from farandole.launch.spec import SpecError


def test_all_ranks_well_is_exit_code_0_and_silence(run: Callable) -> None:
    result = run("-np", 3, "true")
    assert (result.code, result.stdout, result.stderr) == (0, b"", b"")


def test_starting_costs_little(run: Callable) -> None:
    before = os.times()
    run("-np", 4, "true")
    after = os.times()
    spent_s = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent_s < 1.2  # seconds of processor time; it is 0.4 where no other program competes for the caches


def test_a_command_gets_its_own_options(run: Callable) -> None:
    for separator in ([], ["--"]):
        result = run("-np", 1, *separator, "echo", "-np", "7", "--verbose", "--", "x")
        assert result.out == "[0] -np 7 --verbose -- x\n"


def test_a_script_and_a_module_run_with_our_python(run: Callable, script: Callable, tmp_path: Path) -> None:
    text = "import sys; print(sys.executable, sys.argv[1:])"
    assert run("-np", 1, script(text).name, "-x").out == f"[0] {sys.executable} ['-x']\n"
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text(text)
    assert run("-np", 1, "-m", "package.train", "-x").out == f"[0] {sys.executable} ['-x']\n"


def test_an_executable_script_runs_by_its_first_line(run: Callable, tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text("#!/bin/sh\necho shell\n")
    (tmp_path / "run.py").chmod(0o755)
    assert run("-np", 1, "run.py").out == "[0] shell\n"


def test_hosts_alone_mean_their_slots(run: Callable) -> None:
    result = run("-H", f"localhost:1,{os.uname().nodename}:1", "sh", "-c", "echo $FARANDOLE_SIZE")
    assert sorted(result.out.splitlines()) == ["[0] 2", "[1] 2"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-np", "python", "-c", "pass"], "-np must be a positive whole number, not 'python'"),
        (["-np", "0", "true"], "-np must be a positive whole number, not '0'"),
        (["-np", "-3", "true"], "not '-3'"),
        (["-np", "many", "true"], "not 'many'"),
        (["-np", "4", "-H", "localhost:2", "true"], "4"),
        (["-np", "2"], "say what to run"),
        (["true"], "say how many ranks"),
        (["-H", "gpu7:4,gpu7:2", "true"], "gpu7 is listed twice"),
        (["-np", "2", "--no-such-option", "true"], "no-such-option"),
        (["-np", "1", "--start-timeout", "0", "true"], "--start-timeout"),
        (["-np", "1", "--start-timeout", "soon", "true"], "soon"),
        (["-np", "1", "--backend", "native,nonsense", "true"], "'nonsense' is no backend"),
        (["-np"], "requires an argument"),
        (["-np", "1", "--output-dir", "/proc/nowhere", "true"], "/proc/nowhere"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_exit_code_2(run: Callable, arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert result.err.startswith("farandole: ") and result.err.count("\n") == 1
    assert words in result.err


def test_a_slip_in_a_variable_is_told_once(run: Callable) -> None:
    result = run("-np", 2, "true", env={"FARANDOLE_FUSION_TRESHOLD": "1", "FARANDOLE_MINE": "1"})
    sentence = "FARANDOLE_FUSION_TRESHOLD is set, but nothing reads it; did you mean FARANDOLE_FUSION_THRESHOLD?"
    assert (result.code, result.err) == (0, f"farandole: {sentence}\n")


def test_a_wrong_grace_is_a_usage_error(run: Callable) -> None:
    assert run("-np", 1, "true", env={"FARANDOLE_GRACE_SECONDS": "soon"}).code == 2


def test_a_wrong_silence_timeout_is_a_usage_error_however_it_is_given(run: Callable) -> None:
    by_option = run("-np", 1, "-x", "FARANDOLE_SILENCE_TIMEOUT=0", "true")
    by_environment = run("-np", 1, "true", env={"FARANDOLE_SILENCE_TIMEOUT": "0"})
    for result in (by_option, by_environment):
        assert result.code == 2 and "allowed: a number of seconds from 1 to 86400, without a unit." in result.err


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("no-such-command", 127, "no such command in PATH"),
        ("missing.py", 127, "missing.py: no such file"),
        ("./missing", 127, "no such file"),
        ("./data.txt", 126, "chmod +x"),
        ("/tmp", 126, "is a directory"),
        ("./empty", 126, "cannot be executed"),
    ],
)
def test_a_command_that_cannot_run_is_one_sentence(
    run: Callable, tmp_path: Path, command: str, code: int, words: str
) -> None:
    (tmp_path / "data.txt").write_text("x")
    (tmp_path / "empty").write_text("x")
    (tmp_path / "empty").chmod(0o755)
    result = run("-np", 2, command)
    assert (result.code, result.err.count("\n")) == (code, 1)
    assert words in result.err


def test_help_and_version_need_no_rank(launch: Callable) -> None:
    for arguments, words in ((["--help"], b"run "), (["--version"], b"farandole "), (["run", "--help"], b"-np")):
        result = launch(*arguments, verb="").finish()
        assert result.code == 0 and words in result.stdout


def test_an_unknown_verb_is_a_usage_error(launch: Callable) -> None:
    result = launch("--", verb="fly").finish()
    assert result.code == 2 and "fly" in result.err and result.err.count("\n") == 1


def test_the_exit_code_is_that_of_the_failed_rank(run: Callable) -> None:
    result = run("-np", 2, "sh", "-c", "test $FARANDOLE_RANK = 0 || exit 3")
    assert result.code == 3
    assert "rank 1 on localhost" in result.err and "failed first: exit code 3" in result.err


def test_a_killed_rank_is_128_and_the_signal(run: Callable) -> None:
    result = run("-np", 2, "sh", "-c", "test $FARANDOLE_RANK = 0 || kill -9 $$")
    assert result.code == 137
    assert "rank 1 on localhost" in result.err and "killed by SIGKILL (signal 9)" in result.err


def test_the_first_to_fail_is_named_last_with_its_last_lines(run: Callable) -> None:
    # Rank 2 dies; rank 0 sees it and fails by itself; rank 1 has to be ended.
    text = """
    case $FARANDOLE_RANK in
    0) trap '' TERM
       while test ! -e pid || kill -0 $(cat pid) 2>/dev/null; do sleep 0.02; done
       echo "rank 2 is gone" >&2
       exit 1;;
    1) exec sleep 60;;
    2) echo $$ > new; mv new pid
       i=0; while test $i -lt 30; do i=$((i+1)); echo line $i; done; echo "the reason" >&2; exit 5;;
    esac
    """
    result = run("-np", 3, "sh", "-c", text)
    assert result.code == 5
    assert result.took_s < 10
    lines = result.err.splitlines()
    verdict = next(index for index, line in enumerate(lines) if line.startswith("farandole: rank"))
    assert "rank 2 on localhost (pid " in lines[verdict]
    assert lines.index("[0] rank 2 is gone") < verdict
    tail = lines[verdict + 1 : -1]
    assert len(tail) == 20
    assert {f"[2] line {i}" for i in range(12, 31)} | {"[2] the reason"} >= set(tail)
    assert lines[-1].startswith("farandole: ")


def test_a_rank_that_ends_early_without_error_is_fine(run: Callable) -> None:
    result = run("-np", 2, "--verbose", "sh", "-c", "test $FARANDOLE_RANK = 0 || sleep 1")
    assert result.code == 0
    assert "rank 0 ended: exit code 0" in result.err and "1 still running" in result.err


def test_more_ranks_than_cores_is_said_only_when_asked_for(run: Callable) -> None:
    ranks = len(os.sched_getaffinity(0)) + 1
    assert run("-np", ranks, "true").stderr == b""
    assert "more ranks than cores" in run("-np", ranks, "--verbose", "true").err


@pytest.mark.parametrize(
    ("command", "is_refused"),
    [
        *((each, True) for each in ("python -", "python3.11 -u -W ignore - x", "python", "/bin/bash -s", "sh")),
        *((each, False) for each in ("python train.py -", "python -um train", "python -V", "sh -ec true", "cat -")),
    ],
)
def test_a_program_on_stdin_is_for_one_rank(command: str, is_refused: bool) -> None:
    local.check_program(command.split(), 1)
    with pytest.raises(SpecError, match="from stdin, which only rank 0 gets") if is_refused else nullcontext():
        local.check_program(command.split(), 2)


def test_a_here_document_for_several_ranks_is_refused(launch: Callable) -> None:
    result = launch("-np", 2, sys.executable, "-", stdin=subprocess.PIPE).finish(b"print('hello')\n")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert "reads the program from stdin, which only rank 0 gets" in result.err
    assert launch("-np", 1, sys.executable, "-", stdin=subprocess.PIPE).finish(b"print('hello')\n").out == "[0] hello\n"


def test_stdin_goes_to_rank_0_only(launch: Callable) -> None:
    result = launch("-np", 2, "cat", stdin=subprocess.PIPE).finish(b"hello\n")
    assert (result.code, result.stdout) == (0, b"[0] hello\n")


def test_closed_standard_descriptors_do_no_harm(run: Callable) -> None:
    command = [sys.executable, "-m", "farandole.launch", "run", "-np", "2", "cat"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for redirection in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        line = f'exec "$@" {redirection}'
        done = subprocess.run(
            ["sh", "-c", line, "sh", *command], check=False, env=environment, timeout=60, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0


def test_ranks_start_with_no_signal_blocked(run: Callable) -> None:
    result = run("-np", 2, "--no-prefix", "grep", "SigBlk", "/proc/self/status")
    assert result.out.splitlines() == ["SigBlk:\t0000000000000000"] * 2


def test_jobs_at_the_same_time_do_not_meet(launch: Callable) -> None:
    jobs = [launch("-np", 2, "sh", "-c", "sleep 0.2; echo $FARANDOLE_STORE") for _ in range(3)]
    stores = [{line.split()[1] for line in job.finish().out.splitlines()} for job in jobs]
    assert [len(names) for names in stores] == [1, 1, 1]
    assert len(set.union(*stores)) == 3


def test_a_job_inside_a_rank_of_a_job_is_a_job_of_its_own(run: Callable) -> None:
    inner = (
        f"{shlex.quote(sys.executable)} -m farandole.launch run -np 2 sh -c 'echo $FARANDOLE_RANK of $FARANDOLE_SIZE'"
    )
    result = run("-np", 1, "--no-prefix", "sh", "-c", inner)
    assert sorted(result.out.splitlines()) == ["[0] 0 of 2", "[1] 1 of 2"]


# All that is imported late comes early: the environment may lie in a folder that the plain user cannot enter.
PLAIN_USER = """
import ctypes, importlib, os, pkgutil, sys
import difflib, psutil
from farandole import launch
for each in pkgutil.walk_packages(launch.__path__, "farandole.launch."):
    if not each.name.endswith("__main__"):
        importlib.import_module(each.name)
from farandole.launch import cli
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: as if this user had started us
cli.main(["run", "-np", "2", "sh", "-c", "wc -c < $FARANDOLE_KEY_FILE"])
"""


def test_a_plain_user_can_run_jobs(launch: Callable) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", PLAIN_USER], check=False, env=environment, cwd="/", capture_output=True, timeout=60
    )
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, [b"[0] 32", b"[1] 32"]), done.stderr
