"""The order of summation, in NumPy: the very bits of a reduction, from its inputs and who shares memory.

    R(list) = the value itself, or R(first p) + R(rest) with p the largest power of two below the list's length

over the ranks of each group, then over the groups by their lowest rank. 16-bit floats are added in float32 inside a
group, and rounded when a partial leaves the group and after each addition between groups. Operands are prescaled in
their own type. Postscale and average are one factor: for 16-bit floats applied before a partial leaves its group, else
after the last sum.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import meanings
import numpy as np
from meanings import DTYPES

Fold = Callable[[np.ndarray, np.ndarray], np.ndarray]


def ordered(values: Sequence[np.ndarray], fold: Fold) -> np.ndarray:
    """The reduction of the values in the fixed tree order."""
    if len(values) == 1:
        return values[0]
    power = 1 << ((len(values) - 1).bit_length() - 1)
    return fold(ordered(values[:power], fold), ordered(values[power:], fold))


def groups_of(ranks: int, alone: Sequence[int]) -> list[list[int]]:
    """The groups that share memory where each of the ranks `alone` shares none."""
    together = [rank for rank in range(ranks) if rank not in alone]
    groups = [[rank] for rank in alone] + ([together] if together else [])
    return sorted(groups)


def bits(
    op: str, inputs: list[np.ndarray], groups: list[list[int]], prescale: float = 1.0, postscale: float = 1.0
) -> np.ndarray:
    """The exact result of a sum (or average, min, max)."""
    kind = inputs[0].dtype
    inputs = [meanings.prescaled(each, prescale) for each in inputs]
    if kind.kind in "iub" or op in ("Min", "Max"):
        return meanings.reduction(op, inputs, len(inputs), 1.0, postscale).values
    scale = postscale / len(inputs) if op == "Average" else postscale
    if kind in (DTYPES["float16"], DTYPES["bfloat16"]):
        return _halves(inputs, groups, np.float32(scale))
    with np.errstate(all="ignore"):
        partials = [ordered([inputs[rank] for rank in group], np.add) for group in groups]
        total = ordered(partials, np.add)
        return np.asarray(total * kind.type(scale), dtype=kind)


# ---- Adasum: alike for any groups, because the products are summed in one order


_STRETCH = 256  # elements whose products are summed by themselves,
_LANES = 8  # in so many sums that run side by side


def adasum_bits(inputs: list[np.ndarray], prescale: float = 1.0, postscale: float = 1.0) -> np.ndarray:
    """The exact result of Adasum: products of slices, their sums by position, coefficients, the weighted sum."""
    inputs = [meanings.prescaled(each, prescale) for each in inputs]
    kind, wide = inputs[0].dtype, [each.astype(np.float64) for each in inputs]
    grams = [_gram([each[begin:end] for each in wide]) for begin, end in _slices(inputs)]
    total = np.zeros((len(inputs), len(inputs)))
    for gram in grams:
        total = total + gram
    coefficients = [1.0] * len(inputs)
    _weigh(coefficients, total.tolist(), 0, len(inputs))
    result = np.zeros(inputs[0].size)
    for coefficient, each in zip(coefficients, wide, strict=True):
        result = result + coefficient * each
    result = result * postscale
    return result.astype(kind) if kind.itemsize > 2 else result.astype(np.float32).astype(kind)


def _slices(inputs: list[np.ndarray]) -> list[tuple[int, int]]:
    """One per position, with borders on cache lines."""
    members, count, grain = len(inputs), inputs[0].size, 64 // inputs[0].itemsize
    grains = -(-count // grain)
    borders = [min(count, grains * place // members * grain) for place in range(members + 1)]
    return list(itertools.pairwise(borders))


def _gram(vectors: list[np.ndarray]) -> np.ndarray:
    gram = np.zeros((len(vectors), len(vectors)))
    for i, a in enumerate(vectors):
        for j in range(i, len(vectors)):
            for begin in range(0, a.size, _STRETCH):
                gram[i, j] += _product(a[begin : begin + _STRETCH], vectors[j][begin : begin + _STRETCH])
            gram[j, i] = gram[i, j]
    return gram


def _product(a: np.ndarray, b: np.ndarray) -> float:
    terms = a * b
    whole = terms.size // _LANES * _LANES
    lanes = np.zeros(_LANES)
    for row in terms[:whole].reshape(-1, _LANES):
        lanes = lanes + row
    total = 0.0
    for term in [*terms[whole:].tolist(), *lanes.tolist()]:
        total += term
    return total


def _weigh(coefficients: list[float], gram: list[list[float]], begin: int, end: int) -> None:
    """Multiply by the shares that inputs begin .. end - 1 have in each other's sum."""
    if end - begin <= 1:
        return
    middle = begin + (1 << ((end - begin - 1).bit_length() - 1))
    _weigh(coefficients, gram, begin, middle)
    _weigh(coefficients, gram, middle, end)
    first, rest = range(begin, middle), range(middle, end)
    terms = {
        (i, j): coefficients[i] * coefficients[j] * gram[i][j] for i in range(begin, end) for j in range(begin, end)
    }

    def total(left: range, right: range) -> float:
        result = 0.0
        for i in left:
            for j in right:
                result += terms[i, j]
        return result

    common = total(first, rest)
    for part in (first, rest):
        square = total(part, part)
        size = sum(abs(terms[i, j]) for i in part for j in part)
        share = 1.0 - common / (2 * square) if square > 1e-13 * size else 1.0
        for i in part:
            coefficients[i] *= share


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
