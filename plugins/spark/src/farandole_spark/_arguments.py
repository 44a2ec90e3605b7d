"""Checks arguments. Pure."""

from __future__ import annotations

import operator
from typing import SupportsIndex

import farandole

VERBOSITIES = ("all", "log_callback_only")


def count_of(num_proc: SupportsIndex | None) -> int | None:
    """At least 1, or None. Raises ArgumentError and ArgumentTypeError."""
    if num_proc is None:
        return None
    if isinstance(num_proc, bool) or not isinstance(num_proc, SupportsIndex):
        raise farandole.ArgumentTypeError(f"num_proc must be a whole number of ranks, not {num_proc!r:.60}; write 2.")
    count = operator.index(num_proc)
    if count < 1:
        raise farandole.ArgumentError(f"num_proc must be at least 1, not {count}.")
    return count
