"""Jobs that an MPI's launcher starts on several hosts: the ranks meet through MPI, whoever carries the operations.

Here one host plays several: each rank gives its part another name, as init asks for it, and the variables that the
launcher would have set there; memory is not shared.
"""

import os
import subprocess
import sys

import mpis
import pytest
from farandole._start.environment import without_launchers

pytestmark = pytest.mark.timeout(200)

HOSTS = """
import os, socket, time, numpy, farandole, farandole.numpy as frd
prefix = "OMPI_COMM_WORLD_" if "OMPI_COMM_WORLD_RANK" in os.environ else "PMI_"
rank, size = int(os.environ[prefix + "RANK"]), int(os.environ[prefix + "SIZE"])
hosts = [min(r // 2, 1) for r in range(size)]  # two ranks on the first, the others on the second
mine = [r for r in range(size) if hosts[r] == hosts[rank]]
socket.gethostname = lambda: f"host{hosts[rank]}"
names = ("LOCAL_RANK", "LOCAL_SIZE") if prefix[0] == "O" else ("MPI_LOCALRANKID", "MPI_LOCALNRANKS")
for name, value in zip(names, (mine.index(rank), len(mine))):
    os.environ[name if name[0] == "M" else prefix + name] = str(value)
"""
TRAIN = """
from farandole._start import world
stores = []
for life in range(2):
    farandole.init(COMM)
    stores.append(world._state.store)
    assert stores[-1].startswith("tcp:127.0.0.1:"), stores
    assert (farandole.rank(), farandole.size()) == (rank, size)
    assert (farandole.local_rank(), farandole.local_size()) == (mine.index(rank), len(mine))
    assert (farandole.cross_rank(), farandole.cross_size()) == (hosts[rank] if size > 3 or mine.index(rank) == 0 else 0,
                                                                2 if size > 3 or mine.index(rank) == 0 else 1)
    assert farandole.is_homogeneous() == (size == 4)
    total = frd.allreduce(numpy.full(70_000, rank + 1.0), op=farandole.Sum)
    assert (total == size * (size + 1) / 2).all(), total
    farandole.shutdown()
assert stores[0] != stores[1]
"""
FINE = 'os.write(1, b"fine\\n")\n'


def run(kind, ranks, script, tmp_path, **changes):
    path = tmp_path / "script.py"
    path.write_text(script)
    environment = {**without_launchers(), **mpis.variables(kind)}
    environment.update(FARANDOLE_ARENAS="0", FARANDOLE_ADDRESS="127.0.0.1")
    environment["PYTHONPATH"] = os.pathsep.join([*(each for each in sys.path if each), mpis.mpi4py()])
    environment.update(changes)
    command = [*mpis.launcher(kind, ranks), sys.executable, str(path)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def check(done, ranks):
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["fine"] * ranks, done.stdout + done.stderr


@pytest.mark.parametrize(("kind", "ranks"), [("openmpi", 3), ("openmpi", 4), ("mpich", 3)])
def test_the_ranks_meet_through_mpi(kind, ranks, tmp_path):
    script = HOSTS + TRAIN.replace("COMM", "")
    check(run(kind, ranks, script + FINE, tmp_path, FARANDOLE_BACKEND="native"), ranks)


def test_mpi_carries_the_operations_afterwards(tmp_path):
    check(run("openmpi", 4, HOSTS + TRAIN.replace("COMM", "") + FINE, tmp_path), 4)


def test_the_ranks_of_a_communicator_meet_through_it(tmp_path):
    script = HOSTS + "from mpi4py import MPI\n" + TRAIN.replace("COMM", "MPI.COMM_WORLD")
    check(run("openmpi", 3, script + FINE, tmp_path, FARANDOLE_BACKEND="native"), 3)


REFUSED = """
try:
    farandole.init()
except {error} as error:
    assert {words!r} in str(error), error
else:
    raise AssertionError("it was accepted")
"""


def test_a_host_that_nobody_reaches_is_named(tmp_path):
    no_address = (
        "from farandole._runtime.native import core\ncore.host_addresses = lambda: ['10.9.9.9/24'] * (rank < 2)\n"
    )
    script = HOSTS + no_address + REFUSED.format(error="ValueError", words="rank 2 is on host1, which has no address")
    check(run("openmpi", 3, script + FINE, tmp_path, FARANDOLE_ADDRESS=""), 3)


def test_an_address_that_rank_0_does_not_have_is_told_to_all(tmp_path):
    words = "rank 0 cannot listen for the other ranks: cannot listen at tcp:192.0.2.1:0"
    script = HOSTS + REFUSED.format(error="OSError", words=words)
    check(run("openmpi", 3, script + FINE, tmp_path, FARANDOLE_ADDRESS="192.0.2.1"), 3)


# The launcher ends the others when the first of them leaves without MPI_Finalize.
LEAVE_TOGETHER = """
folder = os.path.dirname(__file__)
open(os.path.join(folder, f"told{rank}"), "w").close()
deadline = time.monotonic() + 60
while sum(name.startswith("told") for name in os.listdir(folder)) < 2 and time.monotonic() < deadline:
    time.sleep(0.05)
os._exit(0)
"""


def test_a_rank_that_does_not_call_init_is_no_silent_wait(tmp_path):
    words = "waits in init() for a rank that Open MPI's mpirun started: the one of 3 without this message"
    refused = REFUSED.format(error="farandole.DeadlineError", words=words)
    late = "\nif rank == 2:\n    time.sleep(20)\n    os._exit(0)\n"
    end = FINE + LEAVE_TOGETHER
    done = run("openmpi", 3, HOSTS + late + refused + end, tmp_path, FARANDOLE_START_TIMEOUT="3")
    assert done.stdout.split() == ["fine"] * 2, done.stdout + done.stderr


def test_a_required_key_travels_in_a_file_only(tmp_path):
    script = HOSTS + REFUSED.format(error="ValueError", words="FARANDOLE_REQUIRE_KEY='1' asks for a job key")
    check(run("openmpi", 3, script + FINE, tmp_path, FARANDOLE_REQUIRE_KEY="1"), 3)
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(32))
    script = HOSTS + TRAIN.replace("COMM", "")
    variables = {"FARANDOLE_REQUIRE_KEY": "1", "FARANDOLE_KEY_FILE": str(key), "FARANDOLE_BACKEND": "native"}
    check(run("openmpi", 3, script + FINE, tmp_path, **variables), 3)
