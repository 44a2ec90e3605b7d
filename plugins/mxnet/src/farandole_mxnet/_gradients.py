"""Averaging gradients before an optimizer uses them: what DistributedOptimizer and DistributedTrainer share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farandole import Average, ProcessSet
from farandole.plugin import Compressor, Kind, check_compressor, even_groups, is_alone, predivide_factors, reducing

from farandole_mxnet import _native
from farandole_mxnet._adapter import NDArray
from farandole_mxnet._operations import Compression, begin


@dataclass(frozen=True)
class Reduction:
    """How gradients are averaged. Immutable, and picklable where its compression is."""

    predivide_factor: float = 1.0
    groups: int = 0
    process_set: ProcessSet | None = None
    compression: Compressor[NDArray] | None = None
    prefix: str = ""

    def __post_init__(self) -> None:
        predivide_factors(Average, self.predivide_factor)
        even_groups(0, self.groups)
        if self.compression is not None:
            check_compressor(self.compression)

    def reduce(self, indices: Sequence[int | str], gradients: Sequence[NDArray]) -> None:
        """Average the gradients in place, the first ones first. Never waits.

        Raises:
            MXNetError: an earlier step has failed, with what has happened then.
            ValueError: a gradient that cannot be averaged.
        """
        _native.raise_failure()
        if is_alone(self.process_set):
            return
        for index, gradient in zip(indices, gradients, strict=True):
            _check(index, gradient)
        groups = even_groups(len(indices), self.groups) or [[place] for place in range(len(indices))]
        for group in groups:
            self._reduce([indices[place] for place in group], [gradients[place] for place in group])

    def _reduce(self, indices: Sequence[int | str], gradients: Sequence[NDArray]) -> None:
        compression = self.compression or Compression.none
        sent, contexts = zip(*map(compression.compress, gradients), strict=True)
        factors = predivide_factors(Average, self.predivide_factor)
        parameters = reducing(None, f"gradient.{self.prefix}{indices[0]}", Average, *factors, self.process_set)
        priority = -indices[0] if isinstance(indices[0], int) else 0
        begin(Kind.ALLREDUCE, sent, sent, parameters, priority, is_gradient=True)
        for gradient, tensor, context in zip(gradients, sent, contexts, strict=True):
            if tensor is not gradient:
                gradient[:] = compression.decompress(tensor, context)


def _check(index: int | str, gradient: NDArray) -> None:
    if gradient.stype != "default":
        raise ValueError(
            f"the gradient of parameter {index} is {gradient.stype}, and sparse gradients cannot be averaged: create "
            "the parameter with grad_stype='default' (an Embedding with sparse_grad=False)"
        )
