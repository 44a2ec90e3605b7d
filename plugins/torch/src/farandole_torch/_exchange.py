"""Reduces the gradients of a Keras optimizer.

Keras hands the gradients over after backward, so all are submitted at once; they are reduced in place if they are the
variables' own gradients:

    apply --step--> [added up over the passes] --GradientReducer.finish--> the user's own apply
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import farandole
import torch
from farandole.plugin import GradientReducer, even_groups, is_alone
from farandole.plugin.keras import ExchangeOptions, Groups, key_of

from farandole_torch._adapter import Tensor, collectives, span

Variable = Any  # keras.Variable


class Exchange:
    """Reduces the gradients of one optimizer; a farandole.plugin.KerasExchange.

    Gradients are paired with those of the other ranks by their position in the list, since the numbers in variable
    names also count variables that only one rank may have made. A gradient that is None counts as zeros, because
    another rank may have one. In a world of one nothing is changed.
    """

    def __init__(self, options: ExchangeOptions) -> None:
        """Check the remaining arguments; see farandole_torch.keras.DistributedOptimizer."""
        self.options = options
        self._how: dict[str, Any] = {
            "op": options.op,
            "predivide_factor": options.predivide_factor,
            "compression": options.compression,
            "process_set": options.process_set,
        }
        self._groups, self._prefix = options.groups, f"{options.name}." if options.name else ""
        self._reducer([])  # raises an error for arguments that are out of range
        self._passes, self._average_passes = options.passes, options.average_passes
        self._process_set, self._scale_local = options.process_set, options.scale_local
        self._sparse_as_dense = options.sparse_as_dense
        # Indexed by key_of. The variables are kept, too: otherwise other variables might get their keys.
        self._local: dict[int, Variable] = {}
        self._reducers: dict[tuple[int, ...], tuple[list[Variable], GradientReducer[Tensor]]] = {}
        self._sums: dict[int, tuple[Variable, Tensor]] = {}  # of the gradients since the last update
        self._count = 0  # the number of passes added up in `_sums`

    def register_local_var(self, variable: Variable) -> None:
        """Leave the gradient of this variable to each rank."""
        self._local[key_of(variable)] = variable

    def forget(self) -> None:
        """See farandole.plugin.KerasExchange."""
        self._sums, self._count = {}, 0
        for _, reducer in self._reducers.values():
            reducer.forget()

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # torch is not read
    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(
        self,
        gradients: Sequence[Tensor | None],
        variables: Sequence[Variable],
        build: Callable[[], None],
        apply: Callable[[list[Tensor | None]], Any],
        skip: Callable[[], Any],
    ) -> Any:
        """See farandole.plugin.KerasExchange."""
        if self._passes == 1:
            return apply(self._reduced(gradients, variables))
        build()
        self._add(gradients, variables)
        if self._count < self._passes:
            return skip()
        return apply(self._reduced(self._take(variables), variables))

    def _reduced(self, gradients: Sequence[Tensor | None], variables: Sequence[Variable]) -> list[Tensor | None]:
        """Return the gradients of all ranks combined, one for each variable."""
        results = list(gradients)
        if is_alone(self._process_set):
            return results
        wanted = []
        for index, variable in enumerate(variables):
            if key_of(variable) in self._local:
                results[index] = self._own(results[index])
            else:
                results[index] = self._writable(results[index], variable)
                wanted.append(index)
        with span("farandole.DistributedOptimizer.synchronize"):
            self._reducer_of(variables).finish(wanted, results.__getitem__)
        return results

    def _writable(self, gradient: Tensor | None, variable: Variable) -> Tensor:
        if gradient is None:
            return torch.zeros_like(variable.value)
        if gradient.layout is not torch.strided and self._sparse_as_dense:
            return gradient.to_dense()
        is_ours = gradient is variable.value.grad or self._passes > 1
        return gradient if is_ours else gradient.clone()

    def _own(self, gradient: Tensor | None) -> Tensor | None:
        """Return the gradient that stays on this rank, scaled because the losses of the other ranks do not depend on
        it.
        """
        if gradient is None or not self._scale_local:
            return gradient
        return gradient / (farandole.size() if self._process_set is None else self._process_set.size())

    def _add(self, gradients: Sequence[Tensor | None], variables: Sequence[Variable]) -> None:
        self._count += 1
        for gradient, variable in zip(gradients, variables, strict=True):
            if gradient is None:
                continue
            key = key_of(variable)
            if key in self._sums:
                self._sums[key][1].add_(gradient)
            else:
                self._sums[key] = variable, gradient.to_dense() if gradient.is_sparse else gradient.clone()

    def _take(self, variables: Sequence[Variable]) -> list[Tensor | None]:
        """Return the variables' sums, or averages, and start them again; None for a variable that no pass had a
        gradient for.
        """
        sums, self._sums, self._count = self._sums, {}, 0
        if self._average_passes:
            for _, total in sums.values():
                total.div_(self._passes)
        return [sums[key_of(each)][1] if key_of(each) in sums else None for each in variables]

    def _reducer_of(self, variables: Sequence[Variable]) -> GradientReducer[Tensor]:
        """Return the reducer of these variables, always the same one: programs with two models may use one optimizer
        for both.
        """
        keys = tuple(map(key_of, variables))
        if keys not in self._reducers:
            self._reducers[keys] = list(variables), self._reducer(variables)
        return self._reducers[keys][1]

    def _reducer(self, variables: Sequence[Variable]) -> GradientReducer[Tensor]:
        names = [f"{self._prefix}{index}" for index in range(len(variables))]
        return GradientReducer(collectives, names, groups=_indices(self._groups, variables), **self._how)


def _indices(groups: Groups, variables: Sequence[Variable]) -> list[list[int]]:
    """Return the groups as positions in the list of variables."""
    if isinstance(groups, int):
        return even_groups(len(variables), groups)
    index_of = {key_of(each): index for index, each in enumerate(variables)}
    return [[index_of[key_of(each)] for each in group if key_of(each) in index_of] for group in groups]
