"""Functions that say what this build can do, under Horovod's names; Horovod's answers depend on how it was compiled.

Farandole is compiled against no communication library and no CUDA: it uses the libraries that it finds at run
time. So a backend is "built" when this version knows it. Needs no world.
"""

from __future__ import annotations

from farandole._runtime.native import core
from farandole._start import environment


def mpi_built() -> bool:
    """Returns whether MPI can carry collectives.

    Example:
        >>> hvd.mpi_built()
        True
    """
    return "mpi" in core.backends


def mpi_enabled() -> bool:
    """Returns whether FARANDOLE_BACKEND names MPI, so that it carries collectives here.

    Example:
        >>> hvd.mpi_enabled()
        False
    """
    return "mpi" in environment.backends()


def mpi_threads_supported() -> bool:
    """Returns `mpi_enabled()`: an MPI that carries collectives allows calls by several threads.

    Example:
        >>> hvd.mpi_threads_supported()
        False
    """
    return mpi_enabled()


def gloo_built() -> bool:
    """Returns whether Gloo can carry collectives.

    Example:
        >>> hvd.gloo_built()
        True
    """
    return "gloo" in core.backends


def gloo_enabled() -> bool:
    """Returns whether FARANDOLE_BACKEND names Gloo, so that it carries collectives here.

    Example:
        >>> hvd.gloo_enabled()
        False
    """
    return "gloo" in environment.backends()


def nccl_built() -> int:
    """Returns 1 if NCCL can carry collectives of tensors on GPUs, else 0.

    Example:
        >>> hvd.nccl_built() != 0
        True
    """
    return int("nccl" in core.backends)


def cuda_built() -> bool:
    """Returns True: every build takes tensors on NVIDIA's GPUs, and looks for the driver at the first of them.

    Example:
        >>> hvd.cuda_built()
        True
    """
    return True


def rocm_built() -> bool:
    """Returns False: no build reads tensors on AMD's GPUs.

    Example:
        >>> hvd.rocm_built()
        False
    """
    return False


def ddl_built() -> bool:
    """Returns whether IBM's DDL can carry collectives.

    Example:
        >>> hvd.ddl_built()
        False
    """
    return "ddl" in core.backends


def ccl_built() -> bool:
    """Returns whether Intel's oneCCL can carry collectives.

    Example:
        >>> hvd.ccl_built()
        False
    """
    return "ccl" in core.backends
