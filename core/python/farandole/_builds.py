"""Functions that say what this build can do, under Horovod's names; Horovod's answers depend on how it was compiled.

Farandole is compiled against no communication library and no CUDA: it uses the libraries that it finds at run
time. So a backend is "built" when this version knows it. Needs no world.
"""

from __future__ import annotations

from farandole import _environment
from farandole._native import core


def mpi_built() -> bool:
    """Whether collectives can be carried by MPI."""
    return "mpi" in core.back_ends


def mpi_enabled() -> bool:
    """Whether MPI carries collectives here: whether FARANDOLE_BACKEND names it."""
    return "mpi" in _environment.back_ends()


def mpi_threads_supported() -> bool:
    """Whether MPI may be called by several threads: where it carries anything, it must; False elsewhere."""
    return mpi_enabled()


def gloo_built() -> bool:
    """Whether collectives can be carried by Gloo."""
    return "gloo" in core.back_ends


def gloo_enabled() -> bool:
    """Whether Gloo carries collectives here: whether FARANDOLE_BACKEND names it."""
    return "gloo" in _environment.back_ends()


def nccl_built() -> int:
    """Not 0 where NCCL can carry collectives of tensors on GPUs."""
    return int("nccl" in core.back_ends)


def cuda_built() -> bool:
    """Whether tensors on NVIDIA's GPUs can be given: in every build; the driver is looked for at the first of them."""
    return True


def rocm_built() -> bool:
    """Whether the core reads tensors on AMD's GPUs itself: in no build."""
    return False


def ddl_built() -> bool:
    """Whether collectives can be carried by IBM's DDL."""
    return "ddl" in core.back_ends


def ccl_built() -> bool:
    """Whether collectives can be carried by Intel's oneCCL."""
    return "ccl" in core.back_ends
