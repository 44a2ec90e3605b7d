"""Jobs over MPI as users start them: who began MPI, which of its ranks take part, and what is said of mistakes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import mpis
import pytest
from carried import LONG
from farandole._start.environment import without_launchers

pytestmark = pytest.mark.timeout(200)
KINDS = ("openmpi", "mpich")


def run(kind, ranks, script, tmp_path, options=(), **changes):
    """Run a script on the ranks of a library's launcher, with `options`; what they wrote, and how it ended."""
    path = tmp_path / "script.py"
    path.write_text(script)
    environment = {**without_launchers(), **mpis.variables(kind)}
    environment["PYTHONPATH"] = os.pathsep.join(each for each in sys.path if each)
    environment.update(changes)
    command = [*mpis.launcher(kind, ranks), *options, sys.executable, str(path)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def check(done, ranks):
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["fine"] * ranks, done.stdout + done.stderr


FINE = 'import os\nos.write(1, b"fine\\n")\n'  # in one piece, for all ranks print to one pipe

LIVES = """
import numpy, farandole, farandole.numpy as frd
for life in range(3):
    farandole.init()
    rank, size = farandole.rank(), farandole.size()
    total = frd.allreduce(numpy.full(1000, rank + 1.0), op=farandole.Sum)
    assert (total == size * (size + 1) / 2).all(), total
    farandole.shutdown()
"""


@pytest.mark.parametrize("kind", KINDS)
def test_init_and_shutdown_can_be_repeated(kind, tmp_path):
    check(run(kind, 2, LIVES + FINE, tmp_path), 2)


THROUGH_MPI = """
import ctypes, os
from ctypes import byref
import numpy, farandole, farandole.numpy as frd
mpi = ctypes.CDLL(os.environ["FARANDOLE_MPI_LIB"], ctypes.RTLD_GLOBAL)
flag = ctypes.c_int()
farandole.init()
mpi.MPI_Initialized(byref(flag))
assert flag.value == 1
frd.allreduce(numpy.ones(10))
farandole.shutdown()
mpi.MPI_Finalized(byref(flag))
assert flag.value == 0
"""


def test_mpi_is_begun_by_init_and_outlives_shutdown(tmp_path):
    check(run("openmpi", 2, THROUGH_MPI + FINE, tmp_path), 2)


BEGUN_BEFORE = """
import ctypes, os
import numpy, farandole, farandole.numpy as frd
mpi = ctypes.CDLL(os.environ["FARANDOLE_MPI_LIB"], ctypes.RTLD_GLOBAL)
level = ctypes.c_int()
assert mpi.MPI_Init_thread(None, None, {wanted}, ctypes.byref(level)) == 0
try:
    farandole.init()
except Exception as error:
    assert "without MPI_THREAD_MULTIPLE" in str(error), error
    assert {refused}
else:
    assert not {refused}
    assert (frd.allreduce(numpy.ones(10), op=farandole.Sum) == 2).all()
    farandole.shutdown()
assert mpi.MPI_Finalize() == 0
"""


@pytest.mark.parametrize("kind", KINDS)
def test_mpi_that_the_program_began_is_used(kind, tmp_path):
    check(run(kind, 2, BEGUN_BEFORE.format(wanted=3, refused=False) + FINE, tmp_path), 2)


@pytest.mark.parametrize("kind", KINDS)
def test_mpi_that_the_program_began_without_threads_is_refused(kind, tmp_path):
    check(run(kind, 2, BEGUN_BEFORE.format(wanted=0, refused=True) + FINE, tmp_path), 2)


REFUSED = """
import farandole
try:
    farandole.init()
except Exception as error:
    assert {words!r} in str(error), error
else:
    raise AssertionError("it was accepted")
"""


@pytest.mark.parametrize(
    ("launcher", "library", "words"),
    [
        ("openmpi", "mpich", "Open MPI's mpirun started this process, but the library is MPICH"),
        ("mpich", "openmpi", "of 2 ranks this one is alone in MPI: Open MPI"),
    ],
)
def test_a_library_that_does_not_fit_the_launcher_is_refused(launcher, library, words, tmp_path):
    path = mpis.variables(library)["FARANDOLE_MPI_LIB"]
    check(run(launcher, 2, REFUSED.format(words=words) + FINE, tmp_path, FARANDOLE_MPI_LIB=path), 2)


def test_a_library_that_is_none_is_refused(tmp_path):
    script = REFUSED.format(words="FARANDOLE_MPI_LIB=/nowhere/libmpi.so.40")
    check(run("openmpi", 2, script + FINE, tmp_path, FARANDOLE_MPI_LIB="/nowhere/libmpi.so.40"), 2)


def test_without_mpi_in_the_list_no_library_of_it_is_loaded(tmp_path):
    script = "import farandole\nfarandole.init()\nassert 'libmpi' not in open('/proc/self/maps').read()\n"
    check(run("openmpi", 2, script + FINE, tmp_path, FARANDOLE_BACKEND="native"), 2)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("libm.so.6", "has no function MPI_"),
        ("mpich", "Open MPI's mpirun started this process, but the library is MPICH"),
    ],
)
def test_another_library_under_the_right_name_is_refused(content, words, tmp_path):
    path = tmp_path / "libmpi.so.40"
    if content == "mpich":
        library = Path(mpis.variables("mpich")["FARANDOLE_MPI_LIB"])
        path.symlink_to(library)
        (tmp_path / "mpich").symlink_to(library.parent / "mpich")  # where it looks for what it needs itself
    else:
        maps = Path("/proc/self/maps").read_text().splitlines()
        path.symlink_to(next(line.split(maxsplit=5)[-1] for line in maps if line.endswith(content)))
    script = REFUSED.format(words=words)
    check(run("openmpi", 2, script + FINE, tmp_path, FARANDOLE_MPI_LIB=str(path)), 2)


DIES = """
import os, threading, numpy, farandole, farandole.numpy as frd
farandole.init()
data = numpy.ones(4_000_000)  # nearly all of its time is the library's
frd.allreduce(data)
if farandole.rank() == 1:
    threading.Timer(0.3, lambda: os.kill(os.getpid(), 9)).start()
try:
    while True:
        frd.allreduce(data)
except farandole.PeerLostError as error:
    assert "rank 1" in str(error), error
    os.write(1, b"fine\\n")
    os._exit(0)
"""


@pytest.mark.parametrize(("kind", "ranks"), [("openmpi", 3), ("mpich", 2)])
def test_a_job_whose_rank_dies_in_mpi_ends(kind, ranks, tmp_path):
    done = run(kind, ranks, DIES, tmp_path)
    assert done.returncode != 0
    text = (done.stdout + done.stderr).lower()
    assert "rank 1" in text or "signal 9" in text or "signal: 9" in text, text


# Stops the process `rank` 50 ms of computing after each line on stdin, and kills it if `root` goes on computing, as it
# does while it waits in MPI. Otherwise the operation was over: the process goes on, and so does the next line.
KILLER = """
import os, signal, sys, time

def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

def computes(pid, seconds):
    before, end = cpu_seconds(pid), time.monotonic() + 5
    while cpu_seconds(pid) < before + seconds and time.monotonic() < end:
        time.sleep(0.005)
    return cpu_seconds(pid) >= before + seconds

rank, root = map(int, sys.argv[1:])
for _ in sys.stdin:
    computes(root, 0.05)
    os.kill(rank, signal.SIGSTOP)
    is_in_mpi = computes(root, 0.5)
    os.kill(rank, signal.SIGKILL if is_in_mpi else signal.SIGCONT)
    print(flush=True)
"""

# Rank 1 comes last, and is killed in an operation that nearly always takes longer than 50 ms.
DIES_WITHIN = f"""
import os, subprocess, sys, time
import numpy
import farandole
import farandole.numpy as frd

farandole.init()
data = numpy.ones(16_000_000)
frd.allreduce(data, name="large")
root, *_ = farandole.allgather_object(os.getpid())
farandole.barrier()
if farandole.rank() == 1:
    command = [sys.executable, "-c", {KILLER!r}, str(os.getpid()), str(root)]
    killer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
while farandole.rank() == 1:
    time.sleep(1)
    handle = frd.allreduce_async(data, name="large")
    print(file=killer.stdin, flush=True)
    frd.synchronize(handle)
    killer.stdout.readline()
try:
    while True:  # a rank may have the first result before rank 1 is dead
        frd.allreduce(data, name="large")
except farandole.PeerLostError as error:
    assert "rank 1" in str(error), error
    os.write(1, b"fine\\n")
    os._exit(0)
"""


def test_ranks_that_the_launcher_leaves_alone_are_told_who_died_in_mpi(tmp_path):
    begin, ranks = time.monotonic(), 3 if LONG else 2  # each that survives takes a core for 5 s, in MPI
    done = run("openmpi", ranks, DIES_WITHIN, tmp_path, options=["--continuous"])
    assert done.stdout.split() == ["fine"] * (ranks - 1), done.stdout + done.stderr
    assert "has not come back within 5 s" in done.stderr, done.stderr
    assert time.monotonic() - begin < 100
