"""Functions that report the features of this installation, under Horovod's names.

Farandole is compiled against no communication library and no CUDA: it uses the libraries that it finds at run time. So
the functions whose names end in _built look for a library, and those whose names end in _enabled read the setting that
chooses one. They need no world, start nothing in a library and leave CUDA alone, so a forked child may call them, too.
"""

from __future__ import annotations

import ctypes

from farandole._runtime.native import core
from farandole._start import environment


def mpi_built() -> bool:
    """Return whether an MPI library that can run collectives is installed.

    Example:
        >>> hvd.mpi_built() in (True, False)
        True
    """
    _, missing = core.find_backend("mpi")
    return not missing


def mpi_enabled() -> bool:
    """Return whether FARANDOLE_BACKEND names MPI, so that MPI runs the collectives.

    Example:
        >>> hvd.mpi_enabled()
        False
    """
    return "mpi" in environment.backends()


def mpi_threads_supported() -> bool:
    """Return `mpi_enabled()`: an MPI that runs collectives allows calls from several threads.

    Example:
        >>> hvd.mpi_threads_supported()
        False
    """
    return mpi_enabled()


def gloo_built() -> bool:
    """Return True: scripts ask whether collectives can run on CPUs, and Farandole's own core always can.

    Example:
        >>> hvd.gloo_built()
        True
    """
    return True


def gloo_enabled() -> bool:
    """Return whether Gloo, or Farandole's own core in its place, runs the collectives; true unless MPI does.

    Example:
        >>> hvd.gloo_enabled()
        True
    """
    return not mpi_enabled() or "gloo" in environment.backends()


def nccl_built() -> int:
    """Return the version of NCCL as an integer, 23203 for 2.32.3; 0 if NCCL or the CUDA driver is not found.

    Example:
        >>> hvd.nccl_built() >= 0
        True
    """
    if not cuda_built():
        return 0
    environment.find_libraries(["nccl"])
    library, missing = core.find_backend("nccl")
    if missing:
        return 0
    major, minor, patch = (int(number) for number in library.rpartition(" ")[2].split("."))
    return major * 10000 + minor * 100 + patch


def cuda_built() -> bool:
    """Return whether the CUDA driver's library is installed. CUDA is not initialised.

    Example:
        >>> hvd.cuda_built() in (True, False)
        True
    """
    try:
        ctypes.CDLL(environment.cuda_driver())
    except OSError:
        return False
    return True


def rocm_built() -> bool:
    """Return False: no build reads tensors on AMD's GPUs.

    Example:
        >>> hvd.rocm_built()
        False
    """
    return False


def ddl_built() -> bool:
    """Return False: no build has IBM's DDL.

    Example:
        >>> hvd.ddl_built()
        False
    """
    return False


def ccl_built() -> bool:
    """Return False: no build has Intel's oneCCL.

    Example:
        >>> hvd.ccl_built()
        False
    """
    return False
