"""Training whose every rounding is the same in all frameworks: gradients of one product, and an exact factor.

loss(w) = sum(w * w * x)      gradient 2 * (w * x), one rounding      w -= gradient / 64, an exact product
"""

from __future__ import annotations

from dataclasses import dataclass

import farandole.numpy as fnp
import numpy as np
from calls import mixed, numbers
from farandole.plugin import even_groups, predivide_factors

LEARNING_RATE = 1 / 64
STEPS = 3
_SHAPES = ((1031,), (3, 5), (1,))


@dataclass(frozen=True)
class Options:
    """Of what makes an optimizer distributed."""

    op: str = "Average"
    predivide: float = 1.0
    groups: int = 0
    compression: str = "none"


def start(dtype: str) -> list[np.ndarray]:
    """The weights before the first step, the same on all ranks."""
    return [_numbers(dtype, 1000 + i, shape) for i, shape in enumerate(_SHAPES)]


def factors(dtype: str, step: int) -> list[np.ndarray]:
    """This rank's x of each weight."""
    return [_numbers(dtype, (step * 10 + i) * 10 + fnp.rank(), shape) for i, shape in enumerate(_SHAPES)]


def _numbers(dtype: str, seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return numbers(mixed(seed, int(np.prod(shape))), dtype).reshape(shape)


def by_numpy(dtype: str, options: Options, alone: bool = False) -> list[np.ndarray]:
    """The weights after the last step; `alone`: each rank's by itself."""
    weights = start(dtype)
    for step in range(STEPS):
        gradients = [2 * (w * x) for w, x in zip(weights, factors(dtype, step), strict=True)]
        for weight, gradient in zip(weights, gradients if alone else _reduced(gradients, options), strict=True):
            weight -= LEARNING_RATE * gradient
    return weights


def _reduced(gradients: list[np.ndarray], options: Options) -> list[np.ndarray]:
    op = getattr(fnp, options.op)
    prescale, postscale = predivide_factors(op, options.predivide)
    compression = getattr(fnp.Compression, options.compression)
    words = {"op": op, "prescale_factor": prescale, "postscale_factor": postscale, "compression": compression}
    groups = even_groups(len(gradients), options.groups) or [[place] for place in range(len(gradients))]
    return [each for group in groups for each in fnp.grouped_allreduce([gradients[i] for i in group], **words)]
