"""The order of summation, in NumPy: the very bits of an allreduce, from its inputs and who shares memory.

    R(list) = the value itself, or R(first p) + R(rest) with p the largest power of two below the list's length

over the ranks of each group, then over the groups by their lowest rank. 16-bit floats are added in float32 inside a
group, and rounded when a partial leaves the group and after each addition between groups. What prescale, postscale and
average ask for is one factor: for 16-bit floats applied before a partial leaves its group, else after the last sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import meanings
import numpy as np
from meanings import DTYPES

Fold = Callable[[np.ndarray, np.ndarray], np.ndarray]


def ordered(values: Sequence[np.ndarray], fold: Fold) -> np.ndarray:
    """R over the values."""
    if len(values) == 1:
        return values[0]
    power = 1 << ((len(values) - 1).bit_length() - 1)
    return fold(ordered(values[:power], fold), ordered(values[power:], fold))


def groups_of(ranks: int, alone: Sequence[int]) -> list[list[int]]:
    """Who shares memory with whom where the ranks `alone` do with nobody."""
    together = [rank for rank in range(ranks) if rank not in alone]
    groups = [[rank] for rank in alone] + ([together] if together else [])
    return sorted(groups)


def bits(op: str, inputs: list[np.ndarray], groups: list[list[int]], factor: float = 1.0) -> np.ndarray:
    """The exact result of a sum (or average, min, max); `factor` is prescale * postscale."""
    kind = inputs[0].dtype
    if kind.kind in "iub" or op in ("Min", "Max"):
        return meanings.reduction(op, inputs, len(inputs), factor, 1.0).values
    scale = factor / len(inputs) if op == "Average" else factor
    if kind in (DTYPES["float16"], DTYPES["bfloat16"]):
        return _halves(inputs, groups, np.float32(scale))
    with np.errstate(all="ignore"):
        partials = [ordered([inputs[rank] for rank in group], np.add) for group in groups]
        total = ordered(partials, np.add)
        return np.asarray(total * kind.type(scale), dtype=kind)


def _halves(inputs: list[np.ndarray], groups: list[list[int]], scale: np.float32) -> np.ndarray:
    kind = inputs[0].dtype

    def rounding(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(a.astype(np.float32) + b.astype(np.float32)).astype(kind)

    with np.errstate(all="ignore"):
        wide = [each.astype(np.float32) for each in inputs]
        partials = [
            np.asarray(ordered([wide[rank] for rank in group], np.add) * scale).astype(kind) for group in groups
        ]
        return ordered(partials, rounding)
