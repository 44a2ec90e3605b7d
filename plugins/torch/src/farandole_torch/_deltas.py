"""DistributedOptimizer with op=Adasum: combines the changes that each rank's step would make.

    before step()   remember the parameters
    after it        parameter = remembered + Adasum over the ranks of (parameter - remembered)

The parameters keep their values from before the step until all changes are combined. If Ctrl-C ends the wait,
`synchronize` completes the step. Each rank steps by its own gradients, so the momentum and moments of an optimizer
differ between ranks. Adasum is by Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2021.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from farandole import Adasum, Handle, MismatchError, ProcessSet
from farandole.plugin import Compressor, check_compressor

from farandole_torch._adapter import Tensor, collectives, span
from farandole_torch._agreement import Agreement, Plan, Required
from farandole_torch._checksums import checksums
from farandole_torch._owners import Parameter, check_free, reducing
from farandole_torch._private import after_each_step


@dataclass
class _Change:
    """The change that a step makes to one parameter."""

    name: str
    parameter: Parameter
    start: Tensor
    delta: Any = None  # a tensor once the optimizer has stepped
    handle: Handle[Tensor] | None = None

    def take_back(self) -> None:
        """Restore the parameter's value from before the step, which a rank keeps if the ranks disagree."""
        if self.delta is None:
            self.delta = self.parameter - self.start
        self.parameter.copy_(self.start)


class Deltas(Agreement):
    """The steps of one optimizer, with the same functions that `Reduction` has for gradients.

    Gradients stay on each rank in any case, so inside `no_sync` only a step is refused.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        names: Sequence[str],
        compression: Compressor[Tensor],
        process_set: ProcessSet | None,
    ) -> None:
        super().__init__(parameters, names, process_set)
        check_compressor(compression)
        self._compression = compression
        self._changes: list[_Change] = []  # of the step in progress
        self._required: Required = ()  # of the step in progress
        self._has_stepped = False  # the optimizer has stepped, and its changes are being combined

    @property
    def in_flight(self) -> bool:
        """Return whether the optimizer has stepped and its changes are being combined."""
        return self._has_stepped

    def _begin_watching(self, optimizer: Any) -> None:
        self._take()
        weak = weakref.ref(self)
        after_each_step(optimizer, lambda *_: _call(weak, Deltas._after_step))
        optimizer.register_step_pre_hook(lambda *_: _call(weak, Deltas._before_step))

    passes = 1
    submitted_bytes = 0

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def synchronize(self) -> None:
        """Complete a step whose wait was interrupted; otherwise do nothing, since gradients stay on each rank."""
        if not self.in_flight:
            return
        for change in self._changes:
            change.take_back()
        try:
            with reducing(self._names, self._process_set):
                self._agree()
                self._combine()
        except Exception as error:
            self._end()
            self._explain(self._required, error)
            raise
        self._end()

    def forget(self) -> None:
        self._end()
        super().forget()

    def _end(self) -> None:
        self._changes, self._has_stepped = [], False

    def _combine(self) -> None:
        error: Exception | None = None
        for change in self._changes:
            try:
                change.handle = change.handle or self._reduced(change.name, change.delta)
            except Exception as caught:
                error = error or caught
        results = []
        for change in self._changes:
            try:
                results.append(change.handle and change.handle.wait())
            except Exception as caught:
                error = error or caught
        if error is not None:
            raise error
        for change, result in zip(self._changes, results, strict=True):
            change.parameter.copy_(change.start + result)  # can be repeated if it is interrupted here

    def _agree(self) -> None:
        """Raise MismatchError if the ranks have not frozen the same parameters; see `_agreement`."""
        before, required = self._agreed, self._required
        if before is None:
            refusal = self._ask_at_first(required, checksums(self._parameters, required))
        elif before == required or any(change.handle for change in self._changes):
            return
        else:
            first, *others = [i for i, each in enumerate(before) if each] or [0]
            try:
                refusal = self._ask(required, f"delta.{self._names[first]}")
            except MismatchError:  # on some ranks the set has not changed, so they wait for the others
                for i in others:
                    self._reduced(self._names[i], torch.zeros_like(self._parameters[i])).wait()
                raise
        if refusal is not None:
            raise refusal

    def _plan(self) -> Plan:
        return Plan("what steps change, as op=Adasum asks for", self._names, [[name] for name in self._names])

    @property
    def skips(self) -> bool:
        """Return False: each step reduces something."""
        return False

    @skips.setter
    def skips(self, value: bool) -> None:
        raise ValueError("skip_synchronize() is not for op=Adasum, which reduces what step() has changed, after it")

    def before_unscaling(self) -> None:
        """Refuse: with a GradScaler, each rank would judge its own gradients, and the ranks would not all step."""
        if not self._is_alone:
            raise ValueError(
                "GradScaler cannot be used with op=Adasum: each rank would decide by its own gradients whether to "
                "step(), and the others wait for it; use bfloat16, which needs no scaling, or op=Average"
            )

    def before_zeroing(self) -> None:
        """Raise ValueError after an interrupted step."""
        self._check_complete("zero_grad()")

    def before_extending(self) -> None:
        """Raise ValueError after an interrupted step."""
        self._check_complete("add_param_group()")

    def extend(self, parameters: Sequence[Parameter], names: Sequence[str]) -> None:
        """Add more parameters of the optimizer. Raises like `check_free`."""
        check_free(parameters, names)
        self._parameters += parameters
        self._names += names

    def _check_complete(self, call: str) -> None:
        if self.in_flight:
            raise ValueError(
                f"{call} came after a step() that was interrupted: call synchronize() first, which completes the step"
            )

    def _before_step(self) -> None:
        self._check_complete("step()")
        if self.pauses:
            raise ValueError(
                "step() came inside no_sync(), and with op=Adasum it reduces what it has changed: leave no_sync() "
                "before the last backward() of a step"
            )
        self._check_owned()
        self._take()
        self._required = tuple(parameter.requires_grad for parameter in self._parameters)
        self._changes = [
            _Change(name, parameter, parameter.detach().clone())
            for name, parameter in zip(self._names, self._parameters, strict=True)
            if parameter.requires_grad
        ]

    def _after_step(self) -> None:
        self._has_stepped = True
        with span("farandole.DistributedOptimizer.combine"):
            self.synchronize()

    def _reduced(self, name: str, delta: Tensor) -> Handle[Tensor]:
        sent, context = self._compression.compress(delta)
        handle = collectives.allreduce_async_(sent, None, f"delta.{name}", Adasum, process_set=self._process_set)
        return handle.map(lambda result: self._compression.decompress(result, context))


def _call(weak: weakref.ref[Deltas], function: Callable[[Deltas], None]) -> None:
    deltas = weak()
    if deltas is not None:
        function(deltas)
