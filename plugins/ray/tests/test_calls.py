"""Calls of an executor to ranks, and a job beside the driver: without Ray."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from farandole import FarandoleError, launch
from farandole.engine import hear, hear_bytes, pack_call, result_in, say
from farandole_ray import _log, log
from farandole_ray._actor import GONE, Actor
from farandole_ray._job import Job, new_mark

pytestmark = pytest.mark.timeout(60)


@contextmanager
def rank(actor: Actor, number: int) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(f"\0{actor._name}")
        say(channel, "rank", number=number)
        yield channel


def asked(channel: socket.socket) -> tuple[bytes, str]:
    """The next call of a rank, and its mark."""
    message = hear(channel)
    return bytes(hear_bytes(channel, message["size"])), message["mark"]


def test_a_rank_is_accepted_after_an_accept_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, os.strerror(errno.EMFILE))]

    def accept_second(listener: socket.socket) -> tuple[socket.socket, Any]:
        if failures:
            raise failures.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", accept_second)
    actor = Actor()
    with rank(actor, 4):
        assert actor.await_ranks([4], 5)
    assert not failures


def test_calls_go_to_their_rank_and_an_end_is_noticed() -> None:
    actor = Actor()
    assert not actor.await_ranks([4, 5], 0.05)
    with rank(actor, 4) as fourth, rank(actor, 5) as fifth:
        assert actor.await_ranks([4, 5], 5)
        outcomes: list[bytes] = []
        thread = threading.Thread(target=lambda: outcomes.append(actor.outcome(5, b"call", "mark")))
        thread.start()
        assert asked(fifth) == (b"call", "mark")
        say(fifth, "outcome", size=7)
        fifth.sendall(b"outcome")
        thread.join()
        thread = threading.Thread(target=lambda: outcomes.append(actor.outcome(4, b"call", "")))
        thread.start()
        assert asked(fourth) == (b"call", "")
        fourth.shutdown(socket.SHUT_RDWR)
        thread.join()
        assert outcomes == [b"outcome", GONE]
        actor.end()
        with pytest.raises(ConnectionError):
            hear(fifth)
    assert actor.outcome(9, b"call", "") == GONE


def test_calls_to_one_rank_wait_for_each_other() -> None:
    actor = Actor()
    with rank(actor, 0) as own:
        assert actor.await_ranks([0], 5)
        outcomes: dict[int, bytes] = {}

        def call(number: int) -> None:
            outcomes[number] = actor.outcome(0, b"%d" % number, "")

        threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for _ in threads:
            data, _ = asked(own)
            say(own, "outcome", size=len(data))
            own.sendall(data)
        for thread in threads:
            thread.join()
        assert outcomes == {number: b"%d" % number for number in range(8)}


@contextmanager
def serving(actor: Actor, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The program of rank 0."""
    variables = {**os.environ, "FARANDOLE_RANK": "0", "FARANDOLE_SIZE": "1", "FARANDOLE_LOCAL_RANK": "0"}
    variables |= {"FARANDOLE_LOCAL_SIZE": "1", "FARANDOLE_CROSS_RANK": "0", "FARANDOLE_CROSS_SIZE": "1"}
    variables |= {"FARANDOLE_RAY_SOCKET": actor._name}
    # A shell starts what it runs in the background with SIGINT ignored.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{heard}; from farandole_ray._trainer import serve_calls; serve_calls()"]
    with subprocess.Popen(
        command, env=variables, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert actor.await_ranks([0], 30)
        yield process


def test_a_rank_makes_calls_until_one_raises(tmp_path: Path) -> None:
    actor, mark = Actor(), new_mark()
    with serving(actor, tmp_path) as process:
        outcome = actor.outcome(0, pack_call(lambda: print("x", end="") or os.getcwd(), (), {}, "test"), mark)
        assert result_in(outcome, 0, 1) == str(tmp_path)
        outcome = actor.outcome(0, pack_call(lambda: 1 / 0, (), {}, "test"), mark)
        with pytest.raises(ZeroDivisionError):
            result_in(outcome, 0, 1)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 1 and out == f"x{mark}\n{mark}\n" and "ZeroDivisionError" in err


def test_a_call_may_fork_and_take_the_streams_away(tmp_path: Path) -> None:
    def fork() -> int:
        if child := os.fork():
            os.waitpid(child, 0)
        sys.stderr = None  # type: ignore[assignment]
        return child

    actor, mark = Actor(), new_mark()
    with serving(actor, tmp_path) as process:
        for _ in range(2):
            assert result_in(actor.outcome(0, pack_call(fork, (), {}, "test"), mark), 0, 1) > 0
        actor.end()
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0 and out.count(mark) == err.count(mark) == 2


@pytest.mark.parametrize("end", ["actor", "interrupt"])
def test_a_rank_that_waits_for_a_call_ends_without_a_word(tmp_path: Path, end: str) -> None:
    actor = Actor()
    with serving(actor, tmp_path) as process:
        if end == "actor":
            actor.end()
        else:
            process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 0


def launched(program: str, **leaves: Any) -> Job:
    spec = launch.JobSpec.of([sys.executable, "-c", program], num_proc=1, **leaves)

    def run(**how: Any) -> list[Any]:
        result = launch.run(spec, **how)
        if result.exit_code:
            raise FarandoleError(result.ended.text)
        return [result.exit_code]

    return Job(run)


def test_a_job_keeps_marks_from_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    mark = new_mark()
    program = f"import os; os.write(1, b'one\\nhalf{mark}\\n{mark}\\n'); os.write(2, b'{mark}\\n'); os._exit(3)"
    job = launched(program)
    assert job.ended.wait(30)
    job.show()
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition("] ")[2] for line in lines] == ["one", "half"], lines
    with pytest.raises(FarandoleError, match=r"rank 0 .*exit code 3"):
        job.result()
    assert "exit code 3" in job.why


def test_a_job_that_ends_well_has_results() -> None:
    job = launched("pass")
    assert job.ended.wait(30) and job.result() == [0]


def test_a_job_hands_to_callbacks_what_ranks_of_the_call_log(capsys: pytest.CaptureFixture[str]) -> None:
    mark, other = new_mark(), new_mark()
    program = (
        "import sys; from farandole_ray import _log, log; print('half', end='')\n"
        f"_log.begin({mark!r}); log({{'loss': 0.5, 'weights': [0.25] * 25_000}}); log(7); print('between')\n"
        f"_log.begin({other!r}); log('of an earlier call')"
    )
    heard: list[object] = []
    job = launched(program)
    job.listen(mark, [heard.append])
    assert job.ended.wait(30)
    job.show()
    assert heard == [{"loss": 0.5, "weights": [0.25] * 25_000}, 7]
    assert [line.rpartition("] ")[2] for line in capsys.readouterr().out.splitlines()] == ["half", "between"]


def test_a_callback_that_raises_is_called_no_more() -> None:
    mark = new_mark()
    program = f"from farandole_ray import _log, log; _log.begin({mark!r}); log(1); log(2)"
    heard: list[object] = []

    def raises(values: object) -> None:
        heard.append(values)
        raise KeyError(values)

    job = launched(program)
    job.listen(mark, [raises])
    assert job.ended.wait(30)
    with pytest.raises(KeyError):
        job.show()
    job.show()
    assert heard == [1]


def test_what_cannot_be_logged_is_named_and_elsewhere_nothing_is_logged(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    log(threading.Lock())  # in the rank of another launcher
    assert capfd.readouterr().out == ""
    monkeypatch.setattr(_log, "_mark", new_mark())
    with pytest.raises(ValueError, match=r"farandole_ray\.log sends at most 256 KiB, not 292"):
        log(bytes(300_000))
    with pytest.raises(TypeError, match=r"farandole_ray\.log cannot send a lock \(.*\); log numbers"):
        log(threading.Lock())


def test_a_job_ends_with_the_process_that_started_it() -> None:
    program = (
        "import time; from farandole import launch; from farandole_ray._job import Job\n"
        "spec = launch.JobSpec.of(['sh', '-c', 'echo $$; exec sleep 60'], num_proc=1, prefix=False)\n"
        "job = Job(lambda **how: launch.run(spec, **how))\n"
        "while True: job.show(); time.sleep(0.02)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        process.kill()
    until = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < until
        time.sleep(0.02)
