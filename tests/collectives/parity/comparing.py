"""A rank makes the same calls by numpy's API and by a framework's, and reports where bits differ."""

from __future__ import annotations

from collections.abc import Sequence

import farandole.numpy as fnp
import numpy as np
from expected import expected
from faces import face, join, offers, performed, reference
from steps import Options, by_numpy


def compare(framework: str, way: str, dtype: str) -> tuple[int, list[str]]:
    """How many calls were compared, and a sentence for each with other bits than numpy's."""
    join()
    known, this = reference(dtype), face(framework)
    mine = [call for call in known if offers(this, way, call)]
    results = performed(this, way, mine)
    texts = [
        f"{call}: {text}" for call, got in zip(mine, results, strict=True) if (text := differing(got, known[call]))
    ]
    return len(mine), texts


def compare_with_formulas(dtype: str) -> tuple[int, list[str]]:
    """The same for numpy's face itself."""
    join()
    pairs = [(call, got, expected(call, fnp.rank())) for call, got in reference(dtype).items()]
    known = [(call, got, want) for call, got, want in pairs if want is not None]
    return len(known), [f"{call}: {text}" for call, got, want in known if (text := differing(got, want))]


def compare_training(framework: str, trainer: str, dtype: str, options: Options) -> str:
    join()
    return differing(face(framework).trainers[trainer](dtype, options), by_numpy(dtype, options))


def averaging_shows(dtype: str) -> bool:
    """Returns whether the weights would be others if gradients were not averaged."""
    join()
    return differing(by_numpy(dtype, Options()), by_numpy(dtype, Options(), alone=True)) != ""


def differing(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> str:
    """ "" where all bits are the same, else what is not."""
    if len(got) != len(want):
        return f"{len(got)} results instead of {len(want)}"
    for place, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.shape != b.shape or a.nbytes != b.nbytes:
            return f"result {place} is {a.dtype} {a.shape} instead of {b.dtype} {b.shape}"
        if a.tobytes() != b.tobytes():
            first, count = _first_difference(a, b)
            return f"result {place} has other bits in {count} of {b.size} elements, first in element {first}"
    return ""


def _first_difference(a: np.ndarray, b: np.ndarray) -> tuple[str, int]:
    bits = f"u{b.itemsize}"
    left, right = (np.ascontiguousarray(each).reshape(-1).view(bits) for each in (a, b))
    places = np.nonzero(left != right)[0]
    first, digits = int(places[0]), 2 * b.itemsize
    return f"{first}: {int(left[first]):#0{digits + 2}x}, and numpy has {int(right[first]):#0{digits + 2}x}", len(
        places
    )
