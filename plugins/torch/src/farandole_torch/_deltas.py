"""Adasum of what each rank's step would change: DistributedOptimizer with op=Adasum.

    before step()   remember the parameters
    after it        parameter = remembered + Adasum over the ranks of (parameter - remembered)

Each rank steps by its own gradients, so an optimizer's momentum and moments are the rank's own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from farandole import Adasum, Handle, ProcessSet
from farandole.plugin import Compressor

from farandole_torch._adapter import Tensor, span
from farandole_torch._autograd import collectives

Parameter = Any  # torch.nn.Parameter


class Deltas:
    """The steps of one optimizer; what `Reduction` is for gradients, with the same functions."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        names: Sequence[str],
        compression: Compressor[Tensor],
        process_set: ProcessSet | None,
    ) -> None:
        self._parameters, self._names = list(parameters), list(names)
        self._compression, self._process_set = compression, process_set
        self._starts: list[tuple[str, Parameter, Tensor]] = []  # of a step that is under way
        self._is_alone = True

    def start(self, optimizer: Any, is_alone: bool) -> None:
        """Begin to watch the optimizer's steps."""
        self._is_alone = is_alone
        if is_alone:
            return
        weak = weakref.ref(self)
        after = optimizer.register_step_post_hook(lambda *_: _call(weak, Deltas._after_step))
        optimizer._optimizer_step_post_hooks.move_to_end(after.id, last=False)
        optimizer.register_step_pre_hook(lambda *_: _call(weak, Deltas._before_step))

    passes = 1
    submitted_bytes = 0

    def synchronize(self) -> None:
        """Nothing: gradients are each rank's own."""

    @property
    def skips(self) -> bool:
        """Whether steps reduce nothing: never."""
        return False

    @skips.setter
    def skips(self, value: bool) -> None:
        raise ValueError("skip_synchronize() is not for op=Adasum, which reduces what step() has changed, after it")

    def before_unscaling(self) -> None:
        """Refused: a GradScaler would judge each rank's own gradients, and the ranks not step alike."""
        if not self._is_alone:
            raise ValueError(
                "GradScaler cannot be used with op=Adasum: each rank would decide by its own gradients whether to "
                "step(), and the others wait for it; use bfloat16, which needs no scaling, or op=Average"
            )

    def before_zeroing(self) -> None:
        """Allowed at any time."""

    def before_extending(self) -> None:
        """Allowed at any time."""

    def extend(self, parameters: Sequence[Parameter], names: Sequence[str]) -> None:
        """The optimizer has more parameters."""
        self._parameters += parameters
        self._names += names

    def _before_step(self) -> None:
        self._starts = [
            (name, parameter, parameter.detach().clone())
            for name, parameter in zip(self._names, self._parameters, strict=True)
            if parameter.requires_grad
        ]

    def _after_step(self) -> None:
        with span("farandole.DistributedOptimizer.combine"):
            self._combine()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _combine(self) -> None:
        starts, self._starts = self._starts, []
        handles = [self._reduced(name, parameter - start) for name, parameter, start in starts]
        for _, parameter, start in starts:  # what a rank keeps if the ranks disagree
            parameter.copy_(start)
        error: Exception | None = None
        for handle, (_, parameter, _) in zip(handles, starts, strict=True):
            try:
                parameter.add_(handle.wait())
            except Exception as caught:
                error = error or caught
        if error is not None:
            raise error

    def _reduced(self, name: str, delta: Tensor) -> Handle[Tensor]:
        sent, context = self._compression.compress(delta)
        handle = collectives.allreduce_async_(sent, None, f"delta.{name}", Adasum, process_set=self._process_set)
        return handle.map(lambda result: self._compression.decompress(result, context))


def _call(weak: weakref.ref[Deltas], function: Callable[[Deltas], None]) -> None:
    deltas = weak()
    if deltas is not None:
        function(deltas)
