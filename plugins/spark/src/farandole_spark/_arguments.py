"""Checks arguments. Pure."""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass
from typing import SupportsIndex

import farandole

VERBOSITIES = ("all", "log_callback_only")


def count_of(num_proc: SupportsIndex | None, name: str = "num_proc") -> int | None:
    """Check a number of at least 1, or None. Raises ArgumentError and ArgumentTypeError."""
    return _whole(num_proc, name, 1)


def _whole(value: SupportsIndex | None, name: str, least: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise farandole.ArgumentTypeError(f"{name} must be a whole number, not {value!r:.60}; write 2.")
    number = operator.index(value)
    if number < least:
        raise farandole.ArgumentError(f"{name} must be at least {least}, not {number}.")
    return number


@dataclass(frozen=True)
class Sizes:
    """The numbers of ranks of an elastic job's stages. None means all slots, and later no fewer than at first."""

    least: int | None
    most: int | None


def sizes_of(num_proc: SupportsIndex | None, least: SupportsIndex | None, most: SupportsIndex | None) -> Sizes:
    """Check the numbers of ranks. Raises ArgumentError and ArgumentTypeError."""
    ranks, low, high = count_of(num_proc), count_of(least, "min_num_proc"), count_of(most, "max_num_proc")
    for low_name, low_value, high_name, high_value in (
        ("min_num_proc", low, "num_proc", ranks),
        ("num_proc", ranks, "max_num_proc", high),
        ("min_num_proc", low, "max_num_proc", high),
    ):
        if low_value and high_value and low_value > high_value:
            raise farandole.ArgumentError(
                f"{low_name}={low_value} is more than {high_name}={high_value}; exchange them."
            )
    return Sizes(low or ranks, high or ranks)


def limit_of(reset_limit: SupportsIndex | None) -> int | None:
    """Check a number of at least 0, or None. Raises ArgumentError and ArgumentTypeError."""
    return _whole(reset_limit, "reset_limit", 0)


def folder_of(commits: str | os.PathLike[str] | None) -> str:
    """Return the absolute path of the folder for commits, or "" for the driver's memory. Raises ArgumentError."""
    if commits is None:
        return ""
    path = os.fspath(commits)
    if not os.path.isabs(path) or not os.path.isdir(path) or not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise farandole.ArgumentError(
            f"commits={path!r:.200} must be the absolute path of a folder that the driver and all executors can write "
            "to; make it, or leave commits out."
        )
    return path
