"""Checks arguments. Pure."""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass
from typing import SupportsIndex

import farandole

VERBOSITIES = ("all", "log_callback_only")


def count_of(num_proc: SupportsIndex | None, name: str = "num_proc") -> int | None:
    """At least 1, or None. Raises ArgumentError and ArgumentTypeError."""
    if num_proc is None:
        return None
    if isinstance(num_proc, bool) or not isinstance(num_proc, SupportsIndex):
        raise farandole.ArgumentTypeError(f"{name} must be a whole number of ranks, not {num_proc!r:.60}; write 2.")
    count = operator.index(num_proc)
    if count < 1:
        raise farandole.ArgumentError(f"{name} must be at least 1, not {count}.")
    return count


@dataclass(frozen=True)
class Sizes:
    """Ranks of the stages of an elastic job; None: all slots, and no fewer later than at first."""

    least: int | None
    most: int | None


def sizes_of(num_proc: SupportsIndex | None, least: SupportsIndex | None, most: SupportsIndex | None) -> Sizes:
    """Raises ArgumentError and ArgumentTypeError."""
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
    """At least 0, or None. Raises ArgumentError and ArgumentTypeError."""
    if reset_limit is None:
        return None
    if isinstance(reset_limit, bool) or not isinstance(reset_limit, SupportsIndex):
        raise farandole.ArgumentTypeError(f"reset_limit must be a whole number, not {reset_limit!r:.60}; write 3.")
    limit = operator.index(reset_limit)
    if limit < 0:
        raise farandole.ArgumentError(f"reset_limit must be at least 0, not {limit}.")
    return limit


def folder_of(commits: str | os.PathLike[str] | None) -> str:
    """An absolute path; "" for the driver. Raises ArgumentError."""
    if commits is None:
        return ""
    path = os.fspath(commits)
    if not os.path.isabs(path) or not os.path.isdir(path) or not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise farandole.ArgumentError(
            f"commits={path!r:.200} must be the absolute path of a folder that the driver and all executors can write "
            "to; make it, or leave commits out."
        )
    return path
