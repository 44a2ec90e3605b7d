"""`farandole inspect` beside jobs that run, hang, are stopped and are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from farandole.observe.inspect import inspect
from farandole.observe.jobs import InspectionError
from inspection_samples import NOW_NS, Written, file_of
from other_launcher import two_ranks

# Rank 1 does not come to the last call until the file "go" is there.
LATE = """
import os, time
import numpy as np
import farandole.numpy as hvd
hvd.init()
for _ in range(500):
    hvd.allreduce(np.ones(3, np.float32), name="grad")
while hvd.rank() == 1 and not os.path.exists("go"):
    time.sleep(0.05)
hvd.allreduce(np.ones(3, np.float32), name="grad")
"""
KILLED = """
import os, signal
import numpy as np
import farandole.numpy as hvd
hvd.init()
hvd.allreduce(np.ones(3, np.float32), name="grad")
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
hvd.allreduce(np.ones(3, np.float32), name="grad")
"""


def environment(tmp_path: Path) -> dict[str, str]:
    return {"FARANDOLE_FLIGHT_RECORDER": str(tmp_path / "flights")}


def test_a_rank_that_is_late_and_then_stopped(
    run: Callable, launch: Callable, script: Callable, tmp_path: Path
) -> None:
    env = environment(tmp_path)
    job = launch("-np", 2, script(LATE), env=env)
    found = look_until(run, env, "late")
    assert found["culprits"] == [1] and found["waiting"] == [0]
    assert (
        "has not called allreduce 'grad'; its last operation, allreduce 'grad' (script0.py:7), ended "
        in found["sentence"]
    )
    late = found["ranks"][1]
    assert late["begun"] == 500 and late["state"] == "running"
    assert [each["count"] for each in late["operations"]] == list(range(485, 501))
    assert found["ranks"][0]["operations"][-1]["site"] == "script0.py:10"

    os.kill(late["pid"], signal.SIGSTOP)
    stopped = run(str(late["pid"]), "--no-stacks", verb="inspect", env=env)
    os.kill(late["pid"], signal.SIGCONT)
    assert stopped.code == 0 and stopped.err == ""
    assert stopped.out.splitlines()[0].count("it is stopped by a signal or a debugger") == 1

    (tmp_path / "go").touch()
    assert job.finish().code == 0
    assert list((tmp_path / "flights").iterdir()) == []


def look_until(run: Callable, env: dict[str, str], kind: str) -> dict:
    """The document of inspect, once it says this kind of thing."""
    for _ in range(40):
        result = run("--json", "--no-stacks", verb="inspect", env=env)
        if result.code == 0:
            found = json.loads(result.out)
            if found["kind"] == kind:
                return found
        time.sleep(0.2)
    raise AssertionError(f"{result.out}\n{result.err}")


def test_a_rank_that_is_killed(run: Callable, script: Callable, tmp_path: Path) -> None:
    result = run("-np", 2, script(KILLED), env=environment(tmp_path))
    assert result.code == 128 + signal.SIGKILL
    last = r"killed by SIGKILL .* s; its last operation, allreduce 'grad' \(script0.py:6\), ended [\d.]+ s ago; "
    assert re.search(last, result.err), result.err
    assert result.err.count("farandole: rank 1") == 1, result.err
    assert list((tmp_path / "flights").iterdir()) == []


# Rank 1 sleeps until somebody opens the pipe "go".
STALLED = """
import numpy as np
import farandole.numpy as hvd
hvd.init()
hvd.allreduce(np.ones(3, np.float32), name="grad")
if hvd.rank() == 1:
    open("go").read()
hvd.allreduce(np.ones(3, np.float32), name="grad")
if hvd.rank() == 1:
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
hvd.allreduce(np.ones(3, np.float32), name="grad")
"""


@pytest.fixture
def there(tmp_path: Path) -> dict[str, str]:
    """Variables by which any other host is this machine."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nfor word; do :; done\nexec sh -c "$word"\n')
    ssh.chmod(0o700)
    return {"FARANDOLE_SSH": str(ssh)}


def finish_once_it_says(job: Any, words: bytes, tmp_path: Path) -> tuple[int, str]:
    """The exit code and stderr of a job with a rank that waits for us to open the pipe."""
    seen = b""
    while words not in seen:
        chunk = os.read(job.process.stderr.fileno(), 4096)
        assert chunk, seen.decode()
        seen += chunk
    (tmp_path / "go").write_text("")
    result = job.finish()
    return result.code, seen.decode() + result.err


@pytest.mark.timeout(120)
@pytest.mark.parametrize("host", ["localhost", "there"])
def test_the_launcher_says_by_itself_who_is_waited_for_and_who_was_lost(
    launch: Callable, script: Callable, tmp_path: Path, there: dict[str, str], host: str
) -> None:
    """Also of another host, whose agent looks for it."""
    env = {**environment(tmp_path), **there, "FARANDOLE_WARN_AFTER": "2"}
    os.mkfifo(tmp_path / "go")
    job = launch("-H", f"{host}:2", script(STALLED), env=env)
    code, err = finish_once_it_says(job, b"has not called", tmp_path)
    assert code == 128 + signal.SIGKILL
    (sentence,) = re.findall("^farandole: rank 1 .*has not called.*$", err, re.MULTILINE)
    assert "it sleeps; rank 0 has waited" in sentence
    (sentence,) = re.findall(r"^farandole: rank 1 on .* failed first: .*$", err, re.MULTILINE)
    assert "SIGKILL" in sentence and "; its last operation, allreduce " in sentence


# Rank 0 is killed. Of the two that go on, one is late and then killed. It was rank 2 at the start, and is rank 1 now.
CHANGED = """
import os, signal
import numpy as np
import farandole.numpy as hvd
from farandole import elastic
hvd.init()
number = hvd.rank()

@elastic.run
def train(state):
    while state.step < 60:
        if state.step == 20 and hvd.size() == 3 and number == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if state.step >= 40 and number == 2:
            open("go").read()
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.allreduce(np.ones(3, np.float32), name="grad")
        state.step += 1
        state.commit()

train(elastic.ObjectState(step=0))
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("host", ["localhost", "there"])
def test_the_launcher_says_so_in_every_world_of_an_elastic_job(
    launch: Callable, script: Callable, tmp_path: Path, there: dict[str, str], host: str
) -> None:
    """It names ranks as it does elsewhere: by their order at the start."""
    env = {**environment(tmp_path), **there, "FARANDOLE_WARN_AFTER": "2"}
    os.mkfifo(tmp_path / "go")
    job = launch("-H", f"{host}:3", "--min-np", "2", script(CHANGED), env=env)
    code, err = finish_once_it_says(job, b"has not called", tmp_path)
    assert code == 128 + signal.SIGKILL
    (sentence,) = re.findall("^farandole: rank 2 .*has not called.*$", err, re.MULTILINE)
    assert "it sleeps; rank 1 has waited" in sentence
    (sentence,) = re.findall(r"^farandole: rank 2 on .* failed first: .*$", err, re.MULTILINE)
    assert "SIGKILL" in sentence and "; its last operation, allreduce " in sentence
    assert list((tmp_path / "flights").iterdir()) == []


def test_ranks_of_another_launcher(run: Callable, launch: Callable, script: Callable, tmp_path: Path) -> None:
    """Without ours nobody removes the files of ranks that were killed; they can be read until a later job does."""
    env = environment(tmp_path)
    with two_ranks(script(LATE), tmp_path, env) as ranks:
        assert look_until(run, env, "late")["culprits"] == [1]
        ranks[1].kill()
        assert look_until(run, env, "lost")["culprits"] == [1]
    assert run(verb="inspect", env=env).err == "", "the dead have no stacks"


def start_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_files_that_vanish_during_the_look_are_those_of_ranks_that_left(tmp_path: Path) -> None:
    """The launcher removes them at the end; the first look at them had found their ranks running."""
    alive, gone = tmp_path / "ab12.1.flight", tmp_path / "ab12.2.flight"
    alive.write_bytes(file_of([Written(1, ended=20)], process=(os.getpid(), start_of(os.getpid()))))
    gone.write_bytes(file_of([Written(1, ended=20)], rank=1))
    base = {"FARANDOLE_FLIGHT_RECORDER": str(tmp_path)}

    def look(sleep: Callable[[float], None]) -> dict:
        return json.loads(inspect(base, "", as_json=True, with_stacks=False, sleep=sleep)[0])

    assert look(lambda _: None)["kind"] == "lost"
    assert look(lambda _: gone.unlink())["kind"] == "moves"
    with pytest.raises(InspectionError, match="no rank of yours"):
        look(lambda _: alive.unlink())


def test_nothing_to_inspect(run: Callable, tmp_path: Path) -> None:
    result = run(verb="inspect", env=environment(tmp_path))
    assert (result.code, result.out) == (1, "")
    assert "no rank of yours has a flight recorder on this host" in result.err


def test_a_folder_that_cannot_be_made_ends_no_job(run: Callable, script: Callable) -> None:
    env = {"FARANDOLE_FLIGHT_RECORDER": "/proc/nowhere"}
    result = run("-np", 2, script("import farandole.numpy as hvd\nhvd.init()\nhvd.barrier()"), env=env)
    assert result.code == 0
    assert result.err.count("operations are not recorded for farandole inspect") == 2


def test_an_epoch_that_begins_during_the_look_is_looked_at_by_itself(tmp_path: Path) -> None:
    """The file of the rank that was lost stays, as it does in an elastic job, and a newcomer has one."""
    me, newcomer = ((pid, start_of(pid)) for pid in (os.getpid(), os.getppid()))
    alive, gone = tmp_path / "ab12.1.flight", tmp_path / "ab12.2.flight"
    alive.write_bytes(file_of([Written(1, ended=20)], rank=1, process=me))
    gone.write_bytes(file_of([Written(1, ended=20)]))

    def begin_another(_: float) -> None:
        for rank, path, process in ((0, alive, me), (1, tmp_path / "ab12.3.flight", newcomer)):
            later = file_of([Written(1, ended=20)], rank=rank, process=process, epoch=1, late_ns=NOW_NS + 1)
            path.write_bytes(later)

    base = {"FARANDOLE_FLIGHT_RECORDER": str(tmp_path)}
    found = json.loads(inspect(base, "", as_json=True, with_stacks=False, sleep=begin_another)[0])
    assert found["kind"] == "moves" and [each["rank"] for each in found["ranks"]] == [0, 1]
