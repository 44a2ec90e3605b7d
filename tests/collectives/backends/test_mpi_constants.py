"""The tables of core/src/backends/mpi/library.h beside the headers that MPI libraries bring."""

import os
import subprocess
from pathlib import Path

import mpis
import pytest

pytestmark = pytest.mark.timeout(200)

CORE = Path(__file__).parents[3] / "core"


def compare(library, header, abi, folder):
    program = folder / "mpi_constants"
    compiler = os.environ.get("CXX", "c++").split()
    options = ["-std=c++17", "-I", str(CORE / "src"), "-I", str(mpis.installed(library) / "include")]
    options += [f"-DHEADER=<{header}>", f"-DABI={abi}", "-o", str(program)]
    source = str(CORE / "tests" / "mpi_constants" / "mpi_constants.cc")
    subprocess.run([*compiler, *options, source], check=True, timeout=120)
    return subprocess.run([str(program)], capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.parametrize(
    ("library", "header", "abi"),
    [("openmpi", "mpi.h", "kOpenMpi"), ("mpich", "mpi.h", "kMpich")],
)
def test_the_tables_are_those_of_the_header(library, header, abi, tmp_path):
    done = compare(library, header, abi, tmp_path)
    assert (done.returncode, done.stdout) == (0, "16 handles and 7 numbers are those of the header\n")


def test_a_table_of_another_interface_is_noticed(tmp_path):
    done = compare("mpich", "mpi_abi.h", "kMpich", tmp_path)
    assert done.returncode == 1
    names = ("MPI_COMM_WORLD", "MPI_FLOAT", "MPI_SUM", "MPI_THREAD_MULTIPLE", "MPI_IN_PLACE", "the size of MPI_Comm")
    assert [name for name in names if name not in done.stdout] == []
