"""Helpers of Horovod's that programs import."""

from __future__ import annotations

import functools
from importlib.util import find_spec
from itertools import pairwise
from typing import TypeVar

import farandole
from farandole.plugin import reduction

from horovod._environment import with_variables as env

T = TypeVar("T")
EXTENSIONS = ["tensorflow", "torch", "mxnet"]
_cache = functools.cache


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Return whether the framework and Farandole's plugin for it are installed."""
    found = all(find_spec(name) is not None for name in (ext_base_name, f"farandole_{ext_base_name}"))
    if verbose:
        print(f"horovod.{ext_base_name}: {'available' if found else 'not available'}")
    return found


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Return whether there is a library of NVIDIA's driver for the framework's plugin to use."""
    return extension_available(ext_base_name, verbose) and farandole.cuda_built()


def gloo_built(verbose: bool = False) -> bool:
    """As `farandole.gloo_built`."""
    return farandole.gloo_built()


def mpi_built(verbose: bool = False) -> bool:
    """As `farandole.mpi_built`."""
    return farandole.mpi_built()


def nccl_built(verbose: bool = False) -> int:
    """As `farandole.nccl_built`."""
    return farandole.nccl_built()


def ddl_built(verbose: bool = False) -> bool:
    """As `farandole.ddl_built`."""
    return farandole.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """As `farandole.ccl_built`."""
    return farandole.ccl_built()


def handle_average_backwards_compatibility(op: object, average: bool | None) -> object:
    """Return the reduction of the two arguments that collectives take; `average` is the older one.

    Raises:
        ValueError: both are given, or `op` is no reduction.
    """
    return reduction(average, op)  # type: ignore[arg-type]


def num_rank_is_power_2(num_rank: int) -> bool:
    """Return whether the number is a power of two. Adasum does not need it here."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(l: list[T], n: int) -> list[list[T]]:  # noqa: E741
    """Return `n` parts of a list in its order, whose lengths differ by one at most."""
    length, longer = divmod(len(l), n)
    starts = [part * length + min(part, longer) for part in range(n + 1)]
    return [l[start:end] for start, end in pairwise(starts)]


def check_installed_version(name: str, version: str, exception: BaseException | None = None) -> None:
    """Does nothing: Farandole is not compiled against a version of a framework."""


def is_iterable(x: object) -> bool:
    """Return whether `iter(x)` works."""
    try:
        iter(x)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Return whether a version such as "2.13.0" is at least another.

    Raises:
        ValueError: one is no version.
    """
    from packaging.version import Version

    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"versions are texts such as '2.13.0', not {ver!r} and {target!r}")
    return Version(ver) >= Version(target)
