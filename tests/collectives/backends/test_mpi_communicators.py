"""Worlds and process sets made of mpi4py's communicators."""

import os
import subprocess
import sys

import mpis
import pytest
from farandole._start.environment import without_launchers

pytestmark = pytest.mark.timeout(200)

BEGIN = """
import os, numpy, farandole, farandole.numpy as frd
from mpi4py import MPI
everybody = MPI.COMM_WORLD

def check_sum(process_set=None):
    ranks = (process_set or farandole.global_process_set).ranks
    kwargs = {"process_set": process_set} if process_set else {}
    total = frd.allreduce(numpy.full(70_000, farandole.rank() + 1.0), op=farandole.Sum, **kwargs)
    assert (total == sum(rank + 1.0 for rank in ranks)).all(), total[0]
"""
END = 'os.write(1, b"fine\\n")\n'


def check(kind, ranks, script, tmp_path, **changes):
    path = tmp_path / "script.py"
    path.write_text(BEGIN + script + END)
    environment = {**without_launchers(), **mpis.variables(kind), **changes}
    paths = [each for each in sys.path if each] + [mpis.mpi4py()]
    command = [*mpis.launcher(kind, ranks), sys.executable, str(path)]
    done = subprocess.run(
        command,
        env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["fine"] * ranks, done.stdout + done.stderr


WORLDS = """
for comm in (everybody, everybody.Dup()):
    farandole.init(comm=comm)
    assert (farandole.rank(), farandole.size()) == (everybody.rank, everybody.size)
    check_sum()
    farandole.shutdown()
reverse = everybody.Split(0, -everybody.rank)
farandole.init(comm=reverse)
assert farandole.rank() == everybody.size - 1 - everybody.rank
check_sum()
frd.broadcast(numpy.ones(3), root_rank=farandole.size() - 1)
rows = frd.allgather(numpy.full((1, 2), everybody.rank))
assert rows[:, 0].tolist() == list(reversed(range(everybody.size))), rows
farandole.shutdown()
"""


@pytest.mark.parametrize(("kind", "ranks"), [("openmpi", 3), ("mpich", 2)])
def test_the_order_of_the_communicator_is_that_of_the_world(kind, ranks, tmp_path):
    check(kind, ranks, WORLDS, tmp_path)


def test_a_communicator_makes_a_world_for_our_own_backend_too(tmp_path):
    check("openmpi", 3, WORLDS, tmp_path, FARANDOLE_BACKEND="native")


PARTS = """
part = everybody.Split(everybody.rank % 2, everybody.rank)
farandole.init(comm=part)
assert farandole.size() == part.size
check_sum()
farandole.shutdown()
if everybody.rank > 0:
    try:
        farandole.init(comm=everybody.Create_group(everybody.group.Incl([1, 2, 3])))
        check_sum()
    finally:
        farandole.shutdown()
"""


def test_ranks_that_are_a_part_of_mpis_are_a_world(tmp_path):
    check("openmpi", 4, PARTS, tmp_path)


SETS = """
ends = everybody.Create_group(everybody.group.Incl([0, 2])) if everybody.rank != 1 else MPI.COMM_NULL
of_all = farandole.ProcessSet(everybody.Dup())
assert of_all.mpi_comm is not None and of_all.ranks == list(range(everybody.size))
ranks = everybody.bcast(farandole.ProcessSet(ends).ranks if everybody.rank == 0 else None)
assert ranks == [0, 2], ranks
farandole.init(process_sets=[farandole.ProcessSet(ranks)])
both = farandole.ProcessSet(ends) if everybody.rank != 1 else farandole.ProcessSet(ranks)
if both.included():
    check_sum(both)
later = farandole.add_process_set([1, 2])
if later.included():
    check_sum(later)
check_sum()
farandole.remove_process_set(later)
check_sum()
farandole.shutdown()
reverse = everybody.Split(0, -everybody.rank)
last = everybody.Split(everybody.rank // 2, 0)  # ranks 0 and 1, and 2, who are 2 and 1, and 0, in the reverse order
part = farandole.ProcessSet(last)
others = {0: [0], 1: [0], 2: [1, 2]}[everybody.rank]
sets = [part, farandole.ProcessSet(others)]
farandole.init(comm=reverse, process_sets=sets if everybody.rank == 2 else sets[::-1])
assert part.ranks == ([0] if everybody.rank == 2 else [1, 2]), part
check_sum(part)
everybody.Barrier()
farandole.shutdown()
"""


def test_process_sets_are_made_of_communicators(tmp_path):
    check("openmpi", 3, SETS, tmp_path)


REFUSALS = """
def refused(call, words):
    try:
        call()
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)

refused(lambda: farandole.init(comm=MPI.COMM_NULL), "COMM_NULL has no ranks")
refused(lambda: farandole.init(comm=[0, 1]), "takes an MPI communicator")
refused(lambda: farandole.ProcessSet(MPI.COMM_NULL), "COMM_NULL has no ranks")
half = everybody.Split(everybody.rank, 0)
between = half.Create_intercomm(0, everybody, 1 - everybody.rank)
refused(lambda: farandole.init(comm=between), "intercommunicator")
farandole.init(comm=half)
refused(lambda: farandole.ProcessSet(everybody), "not in this world")
farandole.shutdown()
"""


def test_what_is_no_group_of_ranks_is_refused_with_what_to_do(tmp_path):
    check("openmpi", 2, REFUSALS, tmp_path)


# Then all leave together: MPI_Finalize is collective.
ABSENT = """
import time
if everybody.rank == 2:
    while not everybody.Iprobe(0, 7):  # Recv would take a core meanwhile
        time.sleep(0.01)
    everybody.Recv(bytearray(1), 0, 7)  # in the program's own affairs
    everybody.Recv(bytearray(1), 1, 7)
else:
    try:
        farandole.init(comm=everybody)
    except farandole.DeadlineError as error:
        words = "rank 0 waits in init() for rank(s) 2 of the MPI communicator's 3, which did not call it within 3 s"
        assert words in str(error), error
    else:
        raise AssertionError("it began without rank 2")
    assert not farandole.is_initialized()
    everybody.Send(bytearray(1), 2, 7)
farandole.init(comm=everybody)
check_sum()
farandole.shutdown()
"""


@pytest.mark.parametrize("kind", ["openmpi", "mpich"])
def test_a_rank_that_does_not_come_is_named_and_another_attempt_may_follow(kind, tmp_path):
    changes = {"FARANDOLE_START_TIMEOUT": "3", "FARANDOLE_BACKEND": "native"}
    check(kind, 3, ABSENT, tmp_path, **changes)
