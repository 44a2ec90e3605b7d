"""The meaning of the collectives, in NumPy: from the arrays of all members to what each of them gets.

Written from the meanings (docs/guide and the core's headers), not from the core's code. A result that the order of
summation or a rounding may change comes with the slack that it has; all others are compared bit by bit.
"""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np

DTYPES = {
    **{name: np.dtype(name) for name in ("uint8", "int8", "uint16", "int16", "int32", "int64")},
    **{name: np.dtype(name) for name in ("float16", "float32", "float64", "bool")},
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    **{name: np.dtype(name) for name in ("uint32", "uint64", "complex64", "complex128")},
}
COMPLEX = ("complex64", "complex128")
FLOATS = ("float16", "bfloat16", "float32", "float64")


class Expected(NamedTuple):
    """A result: equal bits, or within `slack` of `values` (both float64) where that is given."""

    values: np.ndarray
    slack: np.ndarray | None = None


def reduction(op: str, inputs: list[np.ndarray], divisor: int, prescale: float, postscale: float) -> Expected:
    """`op` over the inputs, element by element: first scaled by prescale, then reduced, then scaled by postscale."""
    kind = inputs[0].dtype
    if kind == np.bool_:
        fold = np.logical_or if op in ("Sum", "Max") else np.logical_and
        return Expected(_folded(fold, inputs))
    if kind.kind in "iu":
        return Expected(_integers(op, inputs, divisor, prescale, postscale))
    if kind.kind == "c":
        return _complex(op, inputs, divisor, prescale, postscale)
    return _floats(op, inputs, divisor, prescale, postscale)


def _folded(fold: np.ufunc, inputs: list[np.ndarray]) -> np.ndarray:
    result = inputs[0]
    with np.errstate(all="ignore"):
        for each in inputs[1:]:
            result = np.asarray(fold(result, each), dtype=inputs[0].dtype)
    return np.array(result)


def _integers(op: str, inputs: list[np.ndarray], divisor: int, prescale: float, postscale: float) -> np.ndarray:
    """Integers are scaled, folded, where sums and products wrap, and scaled again; an average has the exact sum."""
    scaled = [_scaled_integers(each, prescale) for each in inputs]
    if op == "Average":
        return _averages(scaled, divisor, postscale)
    fold = {"Sum": np.add, "Min": np.minimum, "Max": np.maximum, "Product": np.multiply}[op]
    return _scaled_integers(_folded(fold, scaled), postscale)


def _averages(inputs: list[np.ndarray], divisor: int, factor: float) -> np.ndarray:
    """Of the exact sums, truncated toward zero; 64-bit types are added up as Python's integers."""
    kind = inputs[0].dtype
    totals = np.asarray(sum(each.astype(np.int64 if kind.itemsize < 8 else object) for each in inputs))
    if factor == 1.0:
        return np.asarray(np.where(totals < 0, -(-totals // divisor), totals // divisor)).astype(kind)
    return _truncated(totals.astype(np.float64) * factor / divisor, kind)


def _complex(op: str, inputs: list[np.ndarray], divisor: int, prescale: float, postscale: float) -> Expected:
    """Sums and averages of the real and of the imaginary parts."""
    parts = [
        _floats(op, [getattr(each, part) for each in inputs], divisor, prescale, postscale) for part in ("real", "imag")
    ]
    real, imaginary = (part.values for part in parts)
    slacks = [part.slack for part in parts]
    assert slacks[0] is not None and slacks[1] is not None
    return Expected(real + 1j * imaginary, slacks[0] + slacks[1])


def _scaled_integers(values: np.ndarray, factor: float) -> np.ndarray:
    """Scaled in double precision, truncated toward zero and saturated."""
    if factor == 1.0:
        return values
    return _truncated(values.astype(np.float64) * factor, values.dtype)


def _truncated(values: np.ndarray, kind: np.dtype) -> np.ndarray:
    limits = np.iinfo(kind)
    result = np.clip(np.trunc(values), float(limits.min), float(limits.max))
    return np.where(result >= float(limits.max), limits.max, result.astype(kind)).astype(kind)


def prescaled(values: np.ndarray, factor: float) -> np.ndarray:
    """The very bits of an operand that `prescale_factor` has scaled: in its own type, 16-bit floats in float32."""
    if factor == 1.0 or values.dtype == np.bool_:
        return values
    if values.dtype.kind in "iu":
        return _scaled_integers(values, factor)
    wide = np.dtype(np.float64 if values.dtype == np.float64 else np.float32)
    with np.errstate(all="ignore"):
        return np.asarray(values.astype(wide) * wide.type(factor)).astype(values.dtype)


def _floats(op: str, inputs: list[np.ndarray], divisor: int, prescale: float, postscale: float) -> Expected:
    """With the error that any order of additions, with a rounding after each, may make."""
    kind = inputs[0].dtype
    with np.errstate(all="ignore"):
        wide = [each.astype(np.float64) * prescale for each in inputs]
        fold = {"Sum": np.add, "Average": np.add, "Min": np.minimum, "Max": np.maximum, "Product": np.multiply}[op]
        factor = postscale / divisor if op == "Average" else postscale
        values = _folded(fold, wide) * factor
        if op in ("Min", "Max") and prescale == postscale == 1.0:
            return Expected(values.astype(kind))
        add = op in ("Sum", "Average")
        size = _folded(np.add, [abs(each) for each in wide]) * abs(factor) if add else abs(values)
        info = ml_dtypes.finfo(kind)
        roundings = 2 * len(inputs) + 4
        slack = size * (float(info.eps) * roundings) + float(info.smallest_subnormal) * roundings * max(1, abs(factor))
    return Expected(values, slack)


def adasum(inputs: list[np.ndarray], factor: float) -> Expected:
    """Adasum(a, b) = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b, pair by pair in the order of summation."""
    wide = [each.astype(np.float64) for each in inputs]
    values = np.asarray(_adasum(wide)) * factor
    info = ml_dtypes.finfo(inputs[0].dtype)
    size = sum(abs(each) for each in wide) * abs(factor)
    return Expected(values, size * (2 * float(info.eps) + 1e-9) + 2 * float(info.smallest_subnormal))


def _adasum(wide: list[np.ndarray]) -> np.ndarray:
    if len(wide) == 1:
        return wide[0]
    power = 1 << ((len(wide) - 1).bit_length() - 1)
    a, b = _adasum(wide[:power]), _adasum(wide[power:])
    common, of_a, of_b = (float((x * y).sum()) for x, y in ((a, b), (a, a), (b, b)))
    share_a = 1.0 - common / (2 * of_a) if of_a else 1.0  # a vector without length has nothing in common
    share_b = 1.0 - common / (2 * of_b) if of_b else 1.0
    return share_a * a + share_b * b


def difference(got: np.ndarray, want: Expected) -> str:
    """ "" where `got` is what is expected, else one sentence."""
    if got.shape != want.values.shape:
        return f"the shape is {got.shape} instead of {want.values.shape}"
    if want.slack is None and got.dtype != want.values.dtype:
        return f"the dtype is {got.dtype} instead of {want.values.dtype}"
    wrong = (got != want.values) & ~(_nan(got) & _nan(want.values))
    if want.slack is not None:
        with np.errstate(all="ignore"):
            wide = np.complex128 if got.dtype.kind == "c" else np.float64
            wrong &= ~(abs(got.astype(wide) - want.values) <= want.slack)
    wrong = np.asarray(wrong)
    if not wrong.any():
        return ""
    first = tuple(int(i[0]) for i in np.nonzero(wrong)) if wrong.ndim else ()
    count = f"{int(wrong.sum())} of {wrong.size} elements differ"
    return f"{count}, first {first}: {got[first]} instead of {want.values[first]}"


def _nan(array: np.ndarray) -> np.ndarray:
    return array != array  # noqa: PLR0124  # also for the dtypes of ml_dtypes
