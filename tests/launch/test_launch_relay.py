"""Output under load: whole lines, unharmed bytes, files, terminals, and readers that are slow or gone."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

IN_PIECES = """
import os, random, sys
rank = os.environ["FARANDOLE_RANK"]
dice = random.Random(int(rank))
for number in range(20000):
    line = b"%s %d %s\\n" % (rank.encode(), number, b"x" * dice.choice((0, 1, 40, 300)))
    cut = dice.randrange(len(line)) if number % 16 == 0 else len(line)
    os.write(1, line[:cut])
    if cut < len(line):
        os.write(1, line[cut:])
"""


def test_no_line_is_torn_and_none_is_lost(run: Callable, script: Callable) -> None:
    result = run("-np", 4, script(IN_PIECES), stderr=subprocess.STDOUT)
    assert result.code == 0
    next_number = [0] * 4
    for line in result.stdout.splitlines():
        prefix, rank, number, *x = line.split(b" ")
        assert prefix == b"[%s]" % rank and set(x[0]) <= {ord("x")} and len(x[0]) in (0, 1, 40, 300)
        assert int(number) == next_number[int(rank)]
        next_number[int(rank)] += 1
    assert next_number == [20000] * 4


def test_bytes_that_are_no_text_are_unharmed(run: Callable, script: Callable) -> None:
    text = "import os; os.write(1, bytes(range(256)) * 300 + b'\\n'); os.write(2, b'\\xff\\n')"
    result = run("-np", 1, script(text))
    assert result.stderr == b"[0] \xff\n"
    lines = result.stdout.split(b"\n")
    assert all(line.startswith(b"[0] ") for line in lines[:-1])
    assert b"\n".join(line[4:] for line in lines) == bytes(range(256)) * 300 + b"\n"


def test_a_line_of_megabytes_comes_through(run: Callable, script: Callable) -> None:
    result = run("-np", 1, script("import sys; sys.stdout.write('x' * 5_000_000 + chr(10))"))
    assert result.stdout.replace(b"[0] ", b"").replace(b"\n", b"") == b"x" * 5_000_000


def test_stdout_and_stderr_stay_apart(run: Callable) -> None:
    result = run("-np", 1, "sh", "-c", "echo out; echo err >&2")
    assert (result.out, result.err) == ("[0] out\n", "[0] err\n")


def test_a_last_line_without_newline_is_ended(run: Callable) -> None:
    assert run("-np", 1, "printf", "a\\nb").out == "[0] a\n[0] b\n"


def test_a_progress_bar_shows_before_its_line_ends(launch: Callable) -> None:
    job = launch("-np", 1, "sh", "-c", "printf '\\r 10%%'; read x; echo", stdin=subprocess.PIPE)
    assert job.process.stdout.read(9) == b"[0] \r 10%"
    assert job.finish(b"\n").stdout == b"\n"


def test_a_question_shows_before_it_is_answered(launch: Callable) -> None:
    job = launch("-np", 2, "sh", "-c", "printf 'name? '; read x; echo $x", stdin=subprocess.PIPE)
    began = time.monotonic()
    seen = b""
    while b"[0] name? " not in seen:
        seen += job.process.stdout.read1(100)
    assert time.monotonic() - began < 15
    assert job.finish(b"Ann\n").stdout.endswith(b"Ann\n")


def test_no_prefix_and_timestamp(run: Callable) -> None:
    assert run("-np", 1, "--no-prefix", "echo", "x").out == "x\n"
    out = run("-np", 1, "--timestamp", "echo", "x").out
    assert out.startswith("[0] ") and out.endswith(" x\n") and out.count(":") == 2


def test_colour_follows_the_conventions(run: Callable) -> None:
    assert b"\x1b[" not in run("-np", 1, "echo", "x").stdout
    assert b"\x1b[" in run("-np", 1, "echo", "x", env={"FORCE_COLOR": "1", "NO_COLOR": ""}).stdout
    assert b"\x1b[" not in run("-np", 1, "echo", "x", env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout


@pytest.mark.timeout(60)
def test_a_terminal_gets_colour_and_a_bar_below_the_lines(launch: Callable, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    text = """
    wait_for() { while test ! -e $1; do sleep 0.02; done; }
    if test $FARANDOLE_RANK = 0; then printf '\\r 10%%'; wait_for hello.seen
    else wait_for bar.seen; echo hello; wait_for end; fi
    """
    env = {"NO_COLOR": "", "FORCE_COLOR": "", "TERM": "xterm"}
    job = launch("-np", 2, "sh", "-c", text, env=env, stdout=theirs, stderr=theirs)
    os.close(theirs)

    def shows(words: bytes) -> None:
        shown = b""
        while len(shown) < len(words) and words.startswith(shown):
            shown += os.read(ours, len(words) - len(shown))
        assert shown == words

    erase, zero, one = b"\r\x1b[K", b"\x1b[36m[0]\x1b[0m  10%", b"\x1b[33m[1]\x1b[0m hello\r\n"
    shows(erase + zero)
    (tmp_path / "bar.seen").touch()
    shows(erase + one + zero)
    (tmp_path / "hello.seen").touch()  # rank 0 ends, and its line with it
    shows(erase + zero + b"\r\n")
    (tmp_path / "end").touch()
    assert job.process.wait(60) == 0
    os.close(ours)


def test_each_rank_has_its_file(run: Callable, tmp_path: Path) -> None:
    text = "echo out $FARANDOLE_RANK; echo err >&2"
    assert run("-np", 2, "--output-dir", tmp_path / "a" / "b", "sh", "-c", text).code == 0
    for rank in range(2):
        lines = (tmp_path / "a" / "b" / f"rank.{rank}.log").read_text().splitlines()
        assert sorted(lines) == ["err", f"out {rank}"]


def test_a_full_disk_stops_the_files_and_not_the_ranks(run: Callable, tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank.{rank}.log").symlink_to("/dev/full")
    result = run("-np", 2, "--output-dir", tmp_path, "sh", "-c", "echo 1; sleep 0.2; echo 2")
    assert result.code == 0
    assert sorted(result.out.splitlines()) == ["[0] 1", "[0] 2", "[1] 1", "[1] 2"]
    assert result.err.count("No space left on device") == 1


def test_a_full_disk_behind_stdout_does_not_stop_the_ranks(run: Callable) -> None:
    with open("/dev/full", "wb") as full:
        result = run("-np", 2, "sh", "-c", "echo 1; sleep 0.2; echo 2", stdout=full)
    assert result.code == 0
    assert result.err.count("cannot write to stdout: No space left on device") == 1


def test_a_reader_that_goes_away_ends_the_job(launch: Callable) -> None:
    job = launch("-np", 2, "yes")
    assert job.read_line() in (b"[0] y\n", b"[1] y\n")
    job.process.stdout.close()
    assert job.process.wait(15) == 141
    assert job.process.stderr.read() == b""
    job.wait_until_nothing_is_left()


def test_a_slow_reader_holds_the_ranks_back_and_loses_nothing(launch: Callable, script: Callable) -> None:
    text = "import sys; [print('x' * 100) for _ in range(100_000)]; print('done', file=sys.stderr)"
    job = launch("-np", 1, script(text))
    first = os.read(job.process.stdout.fileno(), 1)  # so the rank writes
    time.sleep(1.0)
    memory = job.inner.memory_info().rss
    result = job.finish()
    assert first + result.stdout == b"[0] " + b"\n[0] ".join([b"x" * 100] * 100_000) + b"\n"
    assert memory < 100 << 20


def test_a_stuck_reader_does_not_keep_the_launcher_from_its_signals(launch: Callable) -> None:
    job = launch("-np", 2, "yes", env={"FARANDOLE_GRACE_SECONDS": "1"})
    job.read_line()
    time.sleep(0.5)
    job.process.terminate()
    assert job.process.wait(15) == 143
    job.wait_until_nothing_is_left()


def test_a_stuck_reader_does_not_keep_an_interrupted_failure(launch: Callable, tmp_path: Path) -> None:
    text = "test $FARANDOLE_RANK = 0 && exec yes; while test ! -e fail; do sleep 0.02; done; exit 3"
    job = launch("-np", 2, "sh", "-c", text)
    assert job.read_line() == b"[0] y\n"
    (tmp_path / "fail").touch()
    while job.inner.children():
        time.sleep(0.05)
    time.sleep(0.5)  # it has failed, and waits for somebody to read what rank 0 wrote
    assert job.process.poll() is None
    job.process.terminate()
    assert job.process.wait(15) == 3
    assert b"rank 1 on localhost" in job.process.stderr.read()
    job.wait_until_nothing_is_left()


def test_python_ranks_print_at_once(launch: Callable, script: Callable) -> None:
    job = launch("-np", 1, script("print('now'); input()"), stdin=subprocess.PIPE)
    assert job.read_line() == b"[0] now\n"
    assert job.finish(b"\n").code == 0


def test_output_of_a_child_that_outlives_its_rank_is_not_waited_for(run: Callable) -> None:
    program = "import os; os.fork() or (os.setsid(), __import__('time').sleep(60))"
    result = run("-np", 1, sys.executable, "-c", program)
    assert result.code == 0 and result.took_s < 15
