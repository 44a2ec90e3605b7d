"""The gradients of one optimizer, from its hooks to their reduction.

backward --hook of each parameter--> ready
step     --hook before it---------> finish, unless `synchronize` came first
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from farandole import Average, Handle, MismatchError, ProcessSet, ReduceOp, Sum
from farandole.plugin import GradientReducer

from farandole_torch._adapter import Tensor, collectives, span
from farandole_torch._agreement import Agreement, Plan, Required
from farandole_torch._checksums import checksums
from farandole_torch._overlap import pays
from farandole_torch._owners import Parameter, check_free, reducing
from farandole_torch._private import before_each_step, version_of
from farandole_torch._sparse import begin


class Reduction(GradientReducer[Tensor], Agreement):
    """The gradients of one optimizer: hooks hand them over, and a step waits until they are reduced."""

    is_sparse = staticmethod(attrgetter("is_sparse"))

    def __init__(
        self,
        parameters: Sequence[Parameter],
        names: Sequence[str],
        *,
        op: ReduceOp,
        process_set: ProcessSet | None,
        sparse_as_dense: bool,
        overlap: bool | None,
        **how: Any,
    ) -> None:
        """`how`: what else GradientReducer takes."""
        if overlap not in (None, True, False):
            raise ValueError(f"overlap={overlap!r} must be True, False or None")
        GradientReducer.__init__(self, collectives, names, op=op, process_set=process_set, **how)
        Agreement.__init__(self, parameters, names, process_set)
        self.skips = False  # steps reduce nothing
        self.synchronized = False  # reduced since the last backward
        self._op, self._overlap = op, overlap
        self._sparse_as_dense = sparse_as_dense
        self._sparse_dims: dict[int, int] = {}  # index -> of the last sparse gradient
        self._reduced_as_dense: dict[int, int] = {}  # index -> the same, where dense ones are reduced in its place
        self._required: Required | None = None  # in the step that has begun
        self._handed: dict[int, tuple[Tensor, int]] = {}  # index -> the gradient that backward left, and its version
        self._reported_leftover = False
        self._wants_sparse = False

    def _begin_watching(self, optimizer: Any) -> None:
        self._wants_sparse = isinstance(optimizer, torch.optim.SparseAdam)  # which refuses others
        self._watch()
        # Ours comes first: hooks that the user registered before, say to clip, are to see the reduced gradients.
        before_each_step(optimizer, partial(_before_step, weakref.ref(self)))

    def forget(self) -> None:
        GradientReducer.forget(self)
        self.synchronized = False
        self._required, self._handed = None, {}
        Agreement.forget(self)

    def synchronize(self) -> None:
        """Reduce all gradients and wait for them."""
        if self._is_alone:
            return
        if self.pauses:
            raise ValueError(
                "gradients cannot be reduced inside no_sync(): leave it before the last backward() of a step, and "
                "call step(), synchronize() and unscale_() after it"
            )
        self._check_owned()
        self._watch()
        with span("farandole.DistributedOptimizer.synchronize"), reducing(self._names, self._process_set):
            self._reduce()
        self.synchronized = True

    def _reduce(self) -> None:
        begun = self._required if self.in_flight else None
        required = self._begin() if begun is None else begun
        if self._agreed is None:
            self._obey(self._ask_at_first(required, checksums(self._parameters, required)))
        elif required != self._agreed and (self.holds or not self.in_flight):
            self._obey(self._ask_again(required, self._agreed))
        wanted = [i for i, each in enumerate(self._parameters) if each.requires_grad or required[i]]
        changed = self._changed()
        self._finish(wanted, required)
        if self._wants_sparse:
            self._make_sparse_again()
        if changed:
            raise ValueError(
                f"the gradient of {changed!r} was changed between backward() and step(), while it was being reduced: "
                "to clip gradients, or to change them otherwise, call synchronize() first"
            )

    def _plan(self) -> Plan:
        operations = [[self._names[i] for i in indices] for indices in self.groups]
        return Plan("gradients", self._names, operations)

    def _changed(self) -> str | None:
        """The name of a parameter whose gradient is not what backward left: other ranks have got the one or the other.

        Asked once in a step, for the reduction changes it, too.
        """
        handed, self._handed = self._handed, {}
        for index, (gradient, version) in handed.items():
            if self._parameters[index].grad is not gradient or version_of(gradient) != version:
                return self._names[index]
        return None

    def _begin(self) -> Required:
        """Of a step: what it reduces is what requires a gradient now. Where that is new, the ranks are asked before."""
        self._required = required = tuple(map(attrgetter("requires_grad"), self._parameters))
        overlaps = pays(self._parameters) if self._overlap is None else self._overlap
        if self._agreed != required or not overlaps:
            self.hold()
        return required

    def _ask_again(self, required: Required, before: Required) -> MismatchError | None:
        operation, together = self.operation_of(before.index(True) if True in before else 0)
        try:
            return self._ask(required, operation)
        except MismatchError as error:  # some have not changed
            self._give_up([i for i, each in enumerate(before) if each and i not in together])
            self._explain(required, error)
            raise

    def _obey(self, refusal: MismatchError | None) -> None:
        if refusal is not None:
            self._give_up(())  # nobody has submitted anything
            raise refusal

    def _give_up(self, expected: Sequence[int]) -> None:
        """Reduce nothing in this step but what other ranks wait for."""
        self._required, self._handed = None, {}
        self.withdraw(range(len(self._names)))
        with contextlib.suppress(Exception):  # there is an error to be told already
            self.finish(expected, self._gradient)

    def _finish(self, wanted: Sequence[int], required: Required) -> None:
        try:
            self.finish(wanted, self._gradient)
        except Exception as error:
            self._explain(required, error)
            raise
        finally:
            if not self.in_flight:
                self._required = None

    def before_step(self) -> None:
        """Does all that `step()` needs before it uses the gradients."""
        if self.skips and not self.synchronized and self.in_flight:
            raise ValueError(
                "step() under skip_synchronize() came while gradients are being reduced: call synchronize() before it"
            )
        if self.pauses or (not self.skips and not self.synchronized):
            self.synchronize()
        self.synchronized = False

    def common(self, loss: Any) -> Any:
        """A closure's loss, reduced as the gradients: by it LBFGS decides how often to call the closure again."""
        if self.skips or not isinstance(loss, torch.Tensor | float):
            return loss
        op = self._op if self._op == Sum else Average
        name = f"loss.{self._names[0]}"
        return collectives.allreduce(torch.as_tensor(loss).detach(), None, name, op=op, process_set=self._process_set)

    def before_unscaling(self) -> None:
        """A GradScaler is about to judge the gradients: all ranks are to judge the reduced ones, and so alike."""
        if not self._is_alone and not self.skips and not self.synchronized:
            self.synchronize()

    def before_zeroing(self) -> None:
        """Raise ValueError between backward and step(), when gradients are on their way."""
        if self.in_flight:
            raise ValueError(
                "zero_grad() came between backward() and step(), while gradients are being reduced: call it before "
                "backward(), or call synchronize() first"
            )
        self.synchronized = False
        if self.begun_passes:
            self._drop_leftover()

    def _drop_leftover(self) -> None:
        """The gradients of a step that is not complete are about to be zero: count its passes anew."""
        if not self._reported_leftover:
            logging.getLogger("farandole").warning(
                "zero_grad() drops the gradients of %d of %d backward passes: a pass over the data probably ended in "
                "the middle of a step. Call step() before it, which reduces what is there, or leave the last batches "
                "of the pass out (drop_last=True)",
                self.begun_passes,
                self.passes,
            )
        self._reported_leftover = True
        self._required = None
        GradientReducer.forget(self)

    def before_extending(self) -> None:
        """Raise ValueError when gradients are on their way."""
        if self.in_flight:
            raise ValueError(
                "add_param_group() came between backward() and step(), while gradients are being reduced: call it "
                "before backward(), or call synchronize() first"
            )

    def extend(self, parameters: Sequence[Parameter], names: Sequence[str]) -> None:
        """The optimizer has more parameters. Raises like `add` and `check_free`."""
        check_free(parameters, names)
        self.add(names)
        self._required = None
        self._parameters += parameters
        if not self._is_alone:
            self._watch()

    @staticmethod
    def _accumulated(weak: weakref.ref[Reduction], index: int, parameter: Parameter) -> None:
        """Called by backward each time it has added to the parameter's gradient."""
        self = weak()
        if self is None:
            return
        self.synchronized = False
        if self.has_lost or self.pauses:
            return
        if self._required is None:
            self._begin()
        gradient = parameter.grad
        if gradient is None or gradient.layout is not torch.strided:
            gradient = self._gradient(index)
        self._handed.pop(index, None)  # where `ready` raises, it is told already that this was changed
        if self.ready(index, gradient):  # before the last pass it is this rank's own
            self._handed[index] = gradient, version_of(gradient)

    def start_sparse(self, index: int, gradient: Tensor, name: str) -> tuple[Handle[Tensor], int]:
        parameter = self._parameters[index]
        self._sparse_dims[index] = gradient.sparse_dim()
        handle, size_bytes = begin(gradient, name, self._op, self._process_set)

        def replaced(result: Tensor) -> Tensor:
            parameter.grad = result.coalesce()
            return gradient

        return handle.map(replaced), size_bytes

    def _watch(self) -> None:
        """Hook the parameters that have none; a frozen one gets its hook when it is no longer frozen."""
        weak = weakref.ref(self)  # a hook must not keep a discarded optimizer at work
        for index in self._take():
            self._parameters[index].register_post_accumulate_grad_hook(partial(self._accumulated, weak, index))

    def _gradient(self, index: int) -> Tensor:
        parameter = self._parameters[index]
        gradient = parameter.grad
        if gradient is None:
            parameter.grad = self._zeros(index, parameter)
        elif gradient.layout is not torch.strided and self._sparse_as_dense:
            self._reduced_as_dense[index] = gradient.sparse_dim()
            parameter.grad = gradient.to_dense()
        return parameter.grad

    def _make_sparse_again(self) -> None:
        """The gradients that were reduced as dense ones; without their rows of zeros."""
        for index, sparse_dim in self._reduced_as_dense.items():
            gradient = self._parameters[index].grad
            if gradient is not None and gradient.layout is torch.strided:
                self._parameters[index].grad = gradient.to_sparse(sparse_dim)

    def _zeros(self, index: int, parameter: Parameter) -> Tensor:
        """Of the layout that the parameter's last gradient had: that of the ranks that have one now."""
        # A parameter of newer versions of PyTorch may want gradients of another dtype than its own; None allows any.
        zeros = torch.zeros_like(parameter, dtype=getattr(parameter, "grad_dtype", None) or parameter.dtype)
        return zeros if index not in self._sparse_dims else zeros.to_sparse(self._sparse_dims[index])


def _before_step(
    weak: weakref.ref[Reduction], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Reduce before step(); with a closure, each time after it, for that is where the gradients come from."""
    reduction = weak()
    if reduction is None:
        return None
    closure: Callable[[], Any] | None = args[1] if len(args) > 1 else kwargs.get("closure")
    if closure is None:
        reduction.before_step()
        return None

    def reduced_closure() -> Any:
        loss = closure()
        reduction.before_step()
        return reduction.common(loss)

    if len(args) > 1:
        return (args[0], reduced_closure, *args[2:]), kwargs
    return args, {**kwargs, "closure": reduced_closure}
