"""A rank dies in the middle of an operation: the others say who it was, soon, and nothing is left."""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid

import psutil
import pytest
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(120)

SOON_S = 5.0  # milliseconds, where the machine is not busy: the long form of test_kills.py judges that

# Every rank reduces again and again; the victim kills itself right after it has submitted one more.
SCRIPT = """
import os, signal, sys, time
import farandole
import farandole.numpy as fnp
import numpy as np

victim, how, kind = int(sys.argv[1]), sys.argv[2], sys.argv[3]
fnp.init()
array = np.ones(int(sys.argv[4]), np.float32)

def perform():
    if kind == "allreduce":
        fnp.allreduce_(array, op=fnp.Max, name="gradients")
    elif kind == "async":
        fnp.synchronize(fnp.allreduce_async_(array, op=fnp.Max, name="gradients"))
    elif kind == "allgather":
        fnp.allgather(array, name="gradients")
    else:
        fnp.broadcast_(array, 0, name="gradients")

fnp.barrier()
if fnp.rank() == victim:
    for step in range(20):
        perform()
    if how == "with a child":  # which keeps the sockets open, as a DataLoader's workers do
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
    if kind == "async":
        fnp.allreduce_async_(array, op=fnp.Max, name="gradients")
    os.write(1, f"{time.monotonic()}\\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)
try:
    for step in range(22):
        perform()
except farandole.PeerLostError as error:
    os.write(1, f"{time.monotonic()} {error}\\n".encode())
else:
    sys.exit("no error")
try:
    perform()
except farandole.RecoverableError:
    os.write(1, b"still lost\\n")
fnp.shutdown()
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


KINDS = ("allreduce", "async", "allgather", "broadcast")
CASES = [(*place, kind, 4, "alone") for place in ((2, 0), (2, 1), (3, 1), (4, 3)) for kind in KINDS]
CASES += [(3, victim, kind, 4_000_000, "with a child") for victim, kind in zip((0, 1, 2, 1), KINDS, strict=True)]


@pytest.mark.parametrize(("ranks", "victim", "kind", "count", "how"), CASES)
def test_the_others_name_the_dead_rank_soon(script, ranks, victim, kind, count, how):
    codes, outputs = zip(*spawn(ranks, script, victim, how, kind, count, timeout=60, check=False), strict=True)
    died = float(outputs[victim])
    for rank in range(ranks):
        if rank == victim:
            assert codes[rank] == -signal.SIGKILL
            continue
        assert codes[rank] == 0, outputs[rank]
        first, second = outputs[rank].splitlines()
        noticed, message = first.split(" ", 1)
        assert float(noticed) - died < SOON_S
        for word in (f"rank {victim}", socket.gethostname(), "gradients"):
            assert word in message
        assert second == "still lost"


def test_the_launcher_ends_the_job(script):
    mark = uuid.uuid4().hex
    launcher = [sys.executable, "-m", "farandole.launch", "run", "-np", "3"]
    done = subprocess.run(
        [*launcher, sys.executable, script, "1", "alone", "allreduce", "9"],
        env={**os.environ, "TEST_FAULTS_MARK": mark},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 128 + signal.SIGKILL, done.stdout + done.stderr
    died = next(float(line.split()[-1]) for line in done.stdout.splitlines() if len(line.split()) == 2)
    assert time.monotonic() - died < 20.0
    assert "rank 1" in done.stderr
    assert [process for process in psutil.process_iter() if carries(process, mark)] == []


def carries(process, mark):
    try:
        return process.environ().get("TEST_FAULTS_MARK") == mark
    except psutil.Error:
        return False
