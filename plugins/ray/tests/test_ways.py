"""The actor of a node, the programs that reach it, and the launcher of the driver: without Ray."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from farandole.engine import pack_call, result_in
from farandole.launch import JobSpec
from farandole_ray import _log, _way, _wire, log
from farandole_ray._actor import GONE, Actor
from farandole_ray._launcher import Launcher, new_mark

pytestmark = pytest.mark.timeout(60)
NAME = "farandole-ray-test"


@contextlib.contextmanager
def desk(answers: dict[str, object]) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """The driver's socket: its name, and the questions."""
    name, asked = f"{NAME}-{secrets.token_hex(8)}", list[dict[str, object]]()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()

        def answer() -> None:
            while True:
                try:
                    channel, _ = listener.accept()
                except OSError:
                    return
                with channel, channel.makefile("rb") as lines:
                    asked.append(json.loads(lines.readline()))
                    channel.sendall(json.dumps(answers).encode() + b"\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield name, asked
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def reach(name: str, command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    words = [
        sys.executable,
        "-I",
        "-S",
        _way.__file__,
        name,
        "reach",
        "-T",
        "-o",
        "BatchMode=yes",
        "--",
        "node",
        command,
    ]
    return subprocess.run(words, input=text, capture_output=True, text=True, timeout=30, check=False)


def test_a_way_carries_stdin_stdout_stderr_and_the_exit_code() -> None:
    token = secrets.token_hex(32)
    port = Actor(token).serve("node-id", "127.0.0.1", ["3", "5"])
    program = (
        "import os, sys; text = sys.stdin.read(); print(len(text), os.environ['CUDA_VISIBLE_DEVICES'], "
        "os.environ['FARANDOLE_NODE']); print('trouble', file=sys.stderr); sys.exit(7)"
    )
    with desk({"address": "127.0.0.1", "port": port, "token": token}) as (name, _):
        done = reach(name, f'exec /elsewhere/python -c "{program}"', "x" * 300_000)
    assert (done.returncode, done.stdout, done.stderr) == (7, "300000 3,5 node-id\n", "trouble\n")


def test_a_way_without_the_token_starts_nothing(tmp_path: Path) -> None:
    port = Actor(secrets.token_hex(32)).serve("node-id", "127.0.0.1", [])
    with desk({"address": "127.0.0.1", "port": port, "token": secrets.token_hex(32)}) as (name, asked):
        done = reach(name, f"exec python -c \"open('{tmp_path}/made', 'w')\"")
    assert (done.returncode, done.stdout) == (255, "")
    assert done.stderr == "Ray's actor on node has ended\n"
    assert asked == [{"host": "node"}, {"lost": "node", "port": port}]
    assert not (tmp_path / "made").exists()


def test_a_host_without_an_actor_is_named() -> None:
    with desk({"error": "Ray has no actor of this job on node any more"}) as (name, _):
        done = reach(name, "exec python -c pass")
    assert (done.returncode, done.stderr) == (255, "Ray has no actor of this job on node any more\n")
    done = reach(f"{NAME}-nobody", "exec python -c pass")
    assert done.returncode == 255 and "the driver does not answer" in done.stderr


def test_hosts_are_printed_as_a_discovery_script_prints_them() -> None:
    with desk({"hosts": {"h0-1a": 2, "h1-2b": 1}}) as (name, _):
        words = [sys.executable, "-I", "-S", _way.__file__, name, "hosts"]
        assert (
            subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout == "h0-1a:2\nh1-2b:1\n"
        )


def test_an_actor_that_is_asked_again_serves_at_the_same_port() -> None:
    actor = Actor(secrets.token_hex(32))
    port = actor.serve("node-id", "127.0.0.1", [])
    assert actor.serve("node-id", "127.0.0.1", []) == port


def rank(name: str, number: int) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(f"\0{name}")
    channel.sendall(_wire.NUMBER.pack(number))
    return channel


def test_calls_go_to_their_rank_and_an_end_is_noticed() -> None:
    actor = Actor(secrets.token_hex(32))
    actor.serve("node-id", "127.0.0.1", [])
    assert not actor.await_ranks([4, 5], 0.05)
    with rank(actor._name, 4) as fourth, rank(actor._name, 5) as fifth:
        assert actor.await_ranks([4, 5], 5)
        outcomes: list[bytes] = []
        thread = threading.Thread(target=lambda: outcomes.append(actor.outcome(5, b"call", b"m" * _wire.MARK_BYTES)))
        thread.start()
        assert _wire.receive(fifth) == b"m" * _wire.MARK_BYTES + b"call"
        _wire.send(fifth, b"outcome")
        thread.join()
        thread = threading.Thread(target=lambda: outcomes.append(actor.outcome(4, b"call", b"")))
        thread.start()
        assert _wire.receive(fourth) == b"call"
        fourth.shutdown(socket.SHUT_RDWR)
        thread.join()
        assert outcomes == [b"outcome", GONE]
        actor.end()
        assert _wire.receive(fifth) is None
    assert actor.outcome(9, b"call", b"") == GONE


def test_the_program_of_a_rank_makes_calls_until_one_raises(tmp_path: Path) -> None:
    actor = Actor(secrets.token_hex(32))
    actor.serve("node-id", "127.0.0.1", [])
    variables = {**os.environ, "FARANDOLE_RANK": "0", "FARANDOLE_SIZE": "1", "FARANDOLE_LOCAL_RANK": "0"}
    variables |= {"FARANDOLE_LOCAL_SIZE": "1", "FARANDOLE_CROSS_RANK": "0", "FARANDOLE_CROSS_SIZE": "1"}
    variables |= {"FARANDOLE_RAY_SOCKET": actor._name, "FARANDOLE_RAY_FOLDER": str(tmp_path)}
    command = [sys.executable, "-c", "from farandole_ray._trainer import main; main()"]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert actor.await_ranks([0], 30)
        mark = new_mark()
        outcome = actor.outcome(0, pack_call(lambda: print("x", end="") or os.getcwd(), (), {}, "test"), mark)
        assert result_in(outcome, 0, 1) == str(tmp_path)
        outcome = actor.outcome(0, pack_call(lambda: 1 / 0, (), {}, "test"), mark)
        with pytest.raises(ZeroDivisionError):
            result_in(outcome, 0, 1)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 1 and out == f"x{mark.decode()}\n{mark.decode()}\n"


def launched(program: str, **leaves: Any) -> Launcher:
    return Launcher(JobSpec.of([sys.executable, "-c", program], num_proc=1, **leaves), dict(os.environ))


def test_the_launcher_keeps_marks_and_its_own_words_from_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    mark = new_mark().decode()
    program = f"import os; os.write(1, b'one\\nhalf{mark}\\n{mark}\\n'); os.write(2, b'{mark}\\n'); os._exit(3)"
    launcher = launched(program)
    assert launcher.ended.wait(30) and launcher.code == 3
    launcher.show()
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition("] ")[2] for line in lines] == ["one", "half"], lines
    assert launcher.blamed == 0 and "exit code 3" in launcher.said and "last lines" not in launcher.said


def test_only_the_verdict_names_the_rank_that_failed() -> None:
    """Not the lines about ranks that are late, or without which an elastic job goes on."""
    late = "farandole: rank 3 makes the others wait: for 1.2 s now, in allreduce 'loss'."
    lost = "farandole: rank 5 on n1 (pid 17) ended: killed by SIGKILL (signal 9) after 0.1 s; {} on."
    lines = "\n".join([late, lost.format("1 rank goes"), lost.format("2 ranks go"), ""])
    program = f"import os; os.write(2, {lines!r}.encode()); os._exit(3)"
    launcher = launched(program, prefix=False)
    assert launcher.ended.wait(30) and launcher.said.count("rank") == 1, launcher.said
    assert launcher.blamed == 0


def test_the_launcher_hands_to_callbacks_what_ranks_of_the_call_log(capsys: pytest.CaptureFixture[str]) -> None:
    mark, other = new_mark(), new_mark()
    program = (
        "import sys; from farandole_ray import _log, log; print('half', end='')\n"
        f"_log.begin({mark!r}); log({{'loss': 0.5, 'weights': [0.25] * 25_000}}); log(7); print('between')\n"
        f"_log.begin({other!r}); log('of an earlier call')"
    )
    heard: list[object] = []
    launcher = launched(program)
    launcher.listen(mark, [heard.append])
    assert launcher.ended.wait(30) and launcher.code == 0
    launcher.show()
    assert heard == [{"loss": 0.5, "weights": [0.25] * 25_000}, 7]
    assert [line.rpartition("] ")[2] for line in capsys.readouterr().out.splitlines()] == ["half", "between"]


def test_a_callback_that_raises_is_called_no_more() -> None:
    mark = new_mark()
    program = f"from farandole_ray import _log, log; _log.begin({mark!r}); log(1); log(2)"
    heard: list[object] = []

    def raises(values: object) -> None:
        heard.append(values)
        raise KeyError(values)

    launcher = launched(program)
    launcher.listen(mark, [raises])
    assert launcher.ended.wait(30)
    with pytest.raises(KeyError):
        launcher.show()
    launcher.show()
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


def test_the_launcher_ends_with_the_process_that_started_it() -> None:
    program = (
        "import os, sys, time; from farandole.launch import JobSpec; from farandole_ray._launcher import Launcher\n"
        "spec = JobSpec.of(['sh', '-c', 'echo $$; exec sleep 60'], num_proc=1, prefix=False)\n"
        "launcher = Launcher(spec, dict(os.environ))\n"
        "while True: launcher.show(); time.sleep(0.02)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        process.kill()
    until = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < until
        time.sleep(0.02)
