"""Functions that say what this build can do, under Horovod's names; Horovod's answers depend on how it was compiled.

Farandole is compiled against no communication library and no CUDA: it uses the libraries that it finds at run
time. So a backend is "built" when this version knows it. Needs no world.
"""

from __future__ import annotations

from farandole import _environment
from farandole._native import core


def mpi_built() -> bool:
    """Whether collectives can be carried by MPI.

    Example:
        >>> hvd.mpi_built()
        True
    """
    return "mpi" in core.back_ends


def mpi_enabled() -> bool:
    """Whether MPI carries collectives here: whether FARANDOLE_BACKEND names it.

    Example:
        >>> hvd.mpi_enabled()
        False
    """
    return "mpi" in _environment.back_ends()


def mpi_threads_supported() -> bool:
    """Whether MPI may be called by several threads: where it carries anything, it must; False elsewhere.

    Example:
        >>> hvd.mpi_threads_supported()
        False
    """
    return mpi_enabled()


def gloo_built() -> bool:
    """Whether collectives can be carried by Gloo.

    Example:
        >>> hvd.gloo_built()
        True
    """
    return "gloo" in core.back_ends


def gloo_enabled() -> bool:
    """Whether Gloo carries collectives here: whether FARANDOLE_BACKEND names it.

    Example:
        >>> hvd.gloo_enabled()
        False
    """
    return "gloo" in _environment.back_ends()


def nccl_built() -> int:
    """Not 0 where NCCL can carry collectives of tensors on GPUs.

    Example:
        >>> hvd.nccl_built() != 0
        True
    """
    return int("nccl" in core.back_ends)


def cuda_built() -> bool:
    """Whether tensors on NVIDIA's GPUs can be given: in every build; the driver is looked for at the first of them.

    Example:
        >>> hvd.cuda_built()
        True
    """
    return True


def rocm_built() -> bool:
    """Whether the core reads tensors on AMD's GPUs itself: in no build.

    Example:
        >>> hvd.rocm_built()
        False
    """
    return False


def ddl_built() -> bool:
    """Whether collectives can be carried by IBM's DDL.

    Example:
        >>> hvd.ddl_built()
        False
    """
    return "ddl" in core.back_ends


def ccl_built() -> bool:
    """Whether collectives can be carried by Intel's oneCCL.

    Example:
        >>> hvd.ccl_built()
        False
    """
    return "ccl" in core.back_ends
