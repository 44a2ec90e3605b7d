"""The rank that a failed job blames, and the text for its user: the guilty rank's process ends after the others.

FARANDOLE_LONG=1: 50 times each.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable

import pytest

TIMES = 50 if os.environ.get("FARANDOLE_LONG") else 1
LATE_S = 1.0  # what a framework may take to end
TRAIN = f"""
import atexit, os, signal, sys, time
how = sys.argv[1]
if os.environ["FARANDOLE_RANK"] == "1":
    atexit.register(time.sleep, {LATE_S})
import numpy as np, farandole.numpy as hvd
hvd.init()
for step in range(1000):
    if step == 5 and hvd.rank() == 1:
        if how == "raise": raise ValueError("no such column")
        if how == "exit": sys.exit(7)
        if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
        if how == "return": sys.exit(0)
    hvd.allreduce(np.ones(10), name="x")
"""
MANNERS = {
    "raise": (1, r"failed first: exit code 1 after"),
    "exit": (7, r"failed first: exit code 7 after"),
    "kill": (128 + signal.SIGKILL, r"failed first: killed by SIGKILL"),
    "return": (1, r"ended first, with exit code 0 after [\d.]+ s, while others still needed it"),
}


@pytest.mark.parametrize("time", range(TIMES))
@pytest.mark.parametrize("manner", MANNERS)
def test_the_rank_that_failed_is_blamed(launch: Callable, script: Callable, manner: str, time: int) -> None:
    code, words = MANNERS[manner]
    result = launch("-np", 3, script(TRAIN), manner).finish()
    assert result.code == code, result.err
    verdict = [line for line in result.err.splitlines() if line.startswith("farandole: rank")]
    assert len(verdict) == 1, result.err
    assert re.match(rf"farandole: rank 1 on localhost \(pid \d+\) {words}", verdict[0]), result.err


def test_its_traceback_is_the_only_one(launch: Callable, script: Callable) -> None:
    err = launch("-np", 4, script(TRAIN), "raise").finish().err
    assert err.count("Traceback") == 1, err
    assert err.count("ValueError: no such column") == 1, err
    others = [line for line in err.splitlines() if " stops at " in line]
    assert 1 <= len(others) <= 3
    assert all(
        re.match(r"\[[023]\] farandole: rank [023] stops at .*:\d+: rank 1 \(.*has left the job", line)
        for line in others
    )


MISTAKES = """
import sys, time
import numpy as np, farandole.numpy as hvd
print("begins")
hvd.init()
hvd.barrier()
def train(how):
    if how == "shape": hvd.allreduce(np.ones(2 + hvd.rank()), name="x")
    if how == "late" and hvd.rank() == 1: time.sleep(60)
    if how == "late": hvd.allreduce(np.ones(2), name="x")
    if how == "column": raise KeyError("no such column")
    if how == "alone" and hvd.rank() == 0: hvd.broadcast_object("best")
    if how == "alone": hvd.allreduce(np.ones(2), name="step")
    if how == "root": hvd.broadcast(np.ones(2), root_rank=7)
    for _ in range(2 + (hvd.rank() == 1)):
        hvd.allreduce(np.ones(2))
    hvd.broadcast(np.ones(2), 0, name="x")
train(sys.argv[1])
"""
SENTENCES = {  # in what order their ranks fail is not known
    "shape": r"farandole\.MismatchError: allreduce 'x': the ranks disagree",
    "late": r"farandole\.DeadlineError: .* has waited [3-9].* for rank 1",
    "batch": r"farandole\.DeadlineError: .* only rank 1 has made unnamed allreduce number \d at script",
    "alone": r"farandole\.DeadlineError: .* only rank 0 has made broadcast_object at script",
    "column": r"KeyError: 'no such column'",
    "root": r"ArgumentError: root_rank=7 is not a rank of this world",
}


@pytest.mark.parametrize("mistake", SENTENCES)
def test_of_what_all_ranks_raise_there_is_one_traceback_and_one_sentence(
    launch: Callable, script: Callable, mistake: str
) -> None:
    differ = mistake in ("batch", "alone")  # the ranks wait in two calls
    settings = {"FARANDOLE_TIMEOUT": "60" if differ else "3", "FARANDOLE_WARN_AFTER": "2"}
    result = launch("-np", 3, script(MISTAKES), mistake, env=settings).finish()
    assert result.code == 1
    assert result.err.count("Traceback") == 1, result.err
    lines = result.err[result.err.index("Traceback") :].splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("farandole: rank"))
    verdict, lines = lines[at], lines[:at]
    elsewhere = [line for line in result.err.splitlines() if " stops at " in line]
    lines = [line for line in lines if line not in elsewhere]
    assert [line for line in lines if re.search(SENTENCES[mistake], line)] == [lines[-1]], result.err
    assert "submit.py" not in "".join(lines)
    rank = lines[-1][1]
    culprit, how = rank, r"failed first: exit code 1 .*; its last lines are above\."
    if mistake == "late":
        culprit, how = "1", rf"did not come in time: rank {rank} waited for it, and gave up after [\d.]+ s; its last"
    assert re.match(rf"farandole: rank {culprit} on localhost \(pid \d+\) {how}", verdict), result.err
    assert len(elsewhere) == differ, result.err
    assert rank == {"batch": "1", "alone": "0"}.get(mistake, rank), "whose call is the odd one"
    assert all(re.search(rf"stops at script\d\.py:\d+ for the same reason as rank {rank}$", each) for each in elsewhere)


# What is missing is missed on all four at once: the first of them to end leaves the others a second.
BEFORE_INIT = """
import os, pathlib, sys, time
how = sys.argv[1]
if how == "missing":
    pathlib.Path("begun." + os.environ["FARANDOLE_RANK"]).touch()
    while len(list(pathlib.Path().glob("begun.*"))) < 4: time.sleep(0.01)
    import no_such_module
import farandole.numpy as hvd
def theirs(kind, error, trace):
    print("theirs", file=sys.stderr)
    before(kind, error, trace)
def fails():
    hvd.rank()
if how == "hook": before, sys.excepthook = sys.excepthook, theirs
if how == "child":
    import subprocess
    subprocess.run([sys.executable, __file__, "rank"])
    hvd.init()
elif how == "hook after init":
    before, sys.excepthook = sys.excepthook, theirs
    hvd.init()
    raise ValueError("no such column")
else: fails()
"""


def before_init(launch: Callable, script: Callable, how: str) -> tuple[int, list[str]]:
    result = launch("-np", 4, script(BEFORE_INIT), how).finish()
    return result.code, result.err.splitlines()


def test_a_mistake_before_init_is_told_once(launch: Callable, script: Callable) -> None:
    code, lines = before_init(launch, script, "rank")
    verdict, rank = lines.pop(), lines[0][1]
    assert code == 1 and all(line.startswith(f"[{rank}] ") for line in lines), lines
    assert lines[0].endswith("Traceback (most recent call last):") and "in fails" in lines[-3 - ("^" in lines[-2])]
    assert lines[-1].startswith(f"[{rank}] farandole.NotInitializedError: ") and len(lines) <= 8, lines
    assert re.match(rf"farandole: rank {rank} on .* failed first: exit code 1 .*; its last lines are above\.", verdict)


def test_what_all_ranks_have_shown_is_not_repeated(launch: Callable, script: Callable) -> None:
    code, lines = before_init(launch, script, "missing")
    assert code == 1 and sum("ModuleNotFoundError" in line for line in lines) == 4, lines
    assert lines[-1].endswith("its last lines are above."), lines


@pytest.mark.parametrize(("how", "most"), [("hook", 1), ("hook after init", 4)])
def test_a_hook_of_the_programs_own_may_hand_on(launch: Callable, script: Callable, how: str, most: int) -> None:
    code, lines = before_init(launch, script, how)
    assert code == 1 and 1 <= sum(line.endswith("] theirs") for line in lines) <= 4, lines
    assert 1 <= sum("Traceback" in line for line in lines) <= most and "excepthook" not in "".join(lines), lines


def test_a_mistake_of_a_child_is_not_the_ranks(launch: Callable, script: Callable) -> None:
    code, lines = before_init(launch, script, "child")
    assert code == 0 and sum("farandole.NotInitializedError" in line for line in lines) == 4, lines


def test_all_ranks_show_what_all_raise_to_who_wants_it(launch: Callable, script: Callable) -> None:
    err = launch("-np", 3, script(MISTAKES), "shape", env={"FARANDOLE_LOG_LEVEL": "info"}).finish().err
    assert all(f"[{rank}] farandole.MismatchError: " in err for rank in range(3)) and "submit.py" in err, err


def test_all_tracebacks_are_there_for_who_wants_them(launch: Callable, script: Callable) -> None:
    err = launch("-np", 3, script(TRAIN), "raise", env={"FARANDOLE_LOG_LEVEL": "info"}).finish().err
    assert err.count("PeerLostError: ") >= 2, err


# Imports can take longer than the second that ranks have for their errors.
WITHOUT_INIT = """
import os, pathlib, sys, time
import farandole
rank = os.environ["FARANDOLE_RANK"]
while rank == "1":
    if all(pathlib.Path(f"imported.{other}").exists() for other in (0, 2)):
        sys.exit(int(sys.argv[1]))
    time.sleep(0.01)
pathlib.Path(f"imported.{rank}").touch()
farandole.init()
"""


@pytest.mark.parametrize("code", [0, 3])
def test_a_rank_that_ends_before_init_is_told_to_those_that_wait_there(
    launch: Callable, script: Callable, code: int
) -> None:
    result = launch("-np", 3, script(WITHOUT_INIT), code).finish()
    assert result.code == (code or 1)
    assert result.took_s < 20  # the start timeout is 120
    assert re.search(rf"rank 1 \(pid \d+\) ended with exit code {code} and had not called init\(\)", result.err), (
        result.err
    )
    wanted = "failed first: exit code 3" if code else "ended first, with exit code 0 after"
    assert re.search(rf"^farandole: rank 1 on localhost \(pid \d+\) {wanted}", result.err, re.MULTILINE), result.err


RAISES_AND_STAYS = """
import os, sys, threading, time
import numpy as np, farandole.numpy as hvd
hvd.init()
if hvd.rank() == 1:
    threading.Thread(target=time.sleep, args=[60]).start()
    raise ValueError("and a thread goes on")
hvd.allreduce(np.ones(10), name="x")
"""


def test_a_culprit_that_does_not_end_is_ended_after_the_grace(launch: Callable, script: Callable) -> None:
    job = launch("-np", 2, script(RAISES_AND_STAYS), env={"FARANDOLE_GRACE_SECONDS": "1", "FARANDOLE_TIMEOUT": "2"})
    result = job.finish()
    assert (result.code, result.took_s < 20) == (1, True), result.err
    assert "ValueError: and a thread goes on" in result.err
    job.wait_until_nothing_is_left()


WAITS = """
import time
import numpy as np, farandole.numpy as hvd
hvd.init()
hvd.allreduce(np.ones(10), name="x")
print("ready", flush=True)
while True:
    hvd.allreduce(np.ones(10), name="x")
    time.sleep(0.01)
"""


def test_an_interrupted_job_ends_with_one_traceback_and_one_line(launch: Callable, script: Callable) -> None:
    job = launch("-np", 3, script(WAITS))
    for _ in range(3):
        assert job.read_line().endswith(b"ready\n")
    os.kill(job.pid, signal.SIGINT)
    result = job.finish()
    assert result.code == 130
    lines = result.err.splitlines()
    assert sum("Traceback" in line for line in lines) == 1, result.err
    assert re.fullmatch(r"farandole: ended by Ctrl-C after [\d.]+ s; all 3 ranks are gone\.", lines[-1]), result.err
    assert sum(line.startswith("farandole") for line in lines) == 1, result.err


FAILS_AFTER_THE_OTHERS = """
import time
import numpy as np, farandole.numpy as hvd
hvd.init()
hvd.allreduce(np.ones(10), name="x")
if hvd.rank() == 0:
    time.sleep(1)
    raise OSError("no room for the checkpoint")
"""


def test_who_had_ended_rightly_is_not_blamed_for_what_another_does_later(launch: Callable, script: Callable) -> None:
    result = launch("-np", 3, script(FAILS_AFTER_THE_OTHERS)).finish()
    assert result.code == 1
    assert re.search(r"^farandole: rank 0 on localhost \(pid \d+\) failed first: exit code 1", result.err, re.MULTILINE)
