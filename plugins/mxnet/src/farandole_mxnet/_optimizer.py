"""An optimizer whose gradients are averaged over the ranks before each update."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import mxnet as mx
from farandole import ArgumentError, ProcessSet
from farandole.plugin import extend

from farandole_mxnet._adapter import NDArray
from farandole_mxnet._gradients import Reduction
from farandole_mxnet._kvstores import explain_kvstores
from farandole_mxnet._parameter_check import compare_before_first_step

Optimizer = TypeVar("Optimizer")  # of the user's: MXNet has no types


def DistributedOptimizer(  # the name that Horovod's users know
    optimizer: Optimizer,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    process_set: ProcessSet | None = None,
) -> Optimizer:
    """Make `optimizer` average each gradient over the ranks before it updates a parameter, and return it.

    For `gluon.Trainer(params, optimizer, kvstore=None)` and `Module.fit(optimizer=optimizer, kvstore=None)`. The
    optimizer stays the object it is, in a subclass of its class with the same name, so learning rates, schedulers and
    saved states work. Averages are taken in the core: `rescale_grad` stays what it is without Farandole. In a world of
    one nothing is added.

    Gradients are averaged in MXNet's engine as soon as backward has computed them, those of the first parameters first.
    When one fails, MXNet raises the error where the parameters are read next, and every later update raises it again.

    Args:
        optimizer: an mxnet.optimizer.Optimizer, with or without state.
        gradient_predivide_factor: divide by this before the sum and by size / this after it.
        num_groups: average the gradients of one update in this many operations; 0 means each in its own.
        process_set: the ranks whose gradients are averaged with each other, by default all. On the others nothing is
            added.

    Raises:
        ValueError: no optimizer, one that is distributed already, or an argument out of range.

    Example:
        >>> optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0))
        >>> weight, gradient = mx.nd.zeros(2), mx.nd.ones(2) * hvd.rank()
        >>> optimizer.update(0, weight, gradient, None)  # by the average of 0 and 1
        >>> weight.asnumpy().tolist()
        [-0.5, -0.5]
    """
    if not isinstance(optimizer, mx.optimizer.Optimizer):
        hint = f": mx.optimizer.create({optimizer!r}, ...) makes one" if isinstance(optimizer, str) else ""
        raise ValueError(f"expected an mxnet.optimizer.Optimizer, not {type(optimizer).__name__}{hint}")
    if isinstance(optimizer, Distributed):
        raise ValueError("this optimizer is distributed already; wrap it once")
    reduction = Reduction(gradient_predivide_factor, num_groups, process_set)
    distributed: Optimizer = _distributed(optimizer, reduction)
    return distributed


class Distributed:
    """The additions of a distributed optimizer; mixed into the user's class."""

    _farandole: Reduction
    _farandole_checked = False
    _farandole_inside = False  # update_multi_precision calls update
    _farandole_pauses = False  # `no_sync`
    _farandole_compared = 0  # see `compare_before_first_step`

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._farandole_update(super().update, index, weight, grad, state)  # type: ignore[misc]

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._farandole_update(super().update_multi_precision, index, weight, grad, state)  # type: ignore[misc]

    def _farandole_update(self, update: Any, index: Any, weight: Any, grad: Any, state: Any) -> None:
        is_outermost = not self._farandole_inside
        if is_outermost:
            check_not_paused(self)
            self._farandole_check()
            if parameters := self.param_dict:  # type: ignore[attr-defined]  # a Trainer's
                compare_before_first_step(self, parameters.values(), self._farandole.process_set)
            self._farandole.reduce(_listed(index), _listed(grad))
            self._farandole_inside = True
        try:
            update(index, weight, grad, state)
        finally:
            self._farandole_inside = not is_outermost

    def _farandole_check(self) -> None:
        if self._farandole_checked:
            return
        names = list(self.idx2name.values())  # type: ignore[attr-defined]  # a Module repeats them for each context
        parameters = self.param_dict.values()  # type: ignore[attr-defined]  # a Trainer's
        check_contexts(parameters)
        if len(set(names)) != len(names):
            raise ValueError(_SEVERAL_CONTEXTS)
        self._farandole_checked = True

    def without_farandole(self) -> Any:
        """An optimizer of the user's class with the same settings and states."""
        plain = _users_class(self)
        copied = plain.__new__(plain)
        copied.__dict__.update({name: value for name, value in vars(self).items() if not name.startswith("_farandole")})
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        """A Trainer saves its optimizer with the states."""
        state = self.__getstate__()  # type: ignore[attr-defined]
        state.pop("_farandole_compared", None)  # what this process has done, or the world in which it was saved
        return _restored, (_users_class(self), self._farandole), state


@contextlib.contextmanager
def pausing(subject: Any, parameters: Any) -> Iterator[None]:
    """`no_sync` of an optimizer or a trainer, whose parameters these are where it knows them."""
    overwritten = [each.name for each in parameters if each.grad_req == "write"]
    if overwritten:
        raise ArgumentError(
            f"the gradient of {overwritten[0]} is overwritten by each backward(), not added to: call "
            "net.collect_params().setattr('grad_req', 'add') before, and their zero_grad() after each step"
        )
    before, subject._farandole_pauses = subject._farandole_pauses, True
    try:
        yield
    finally:
        subject._farandole_pauses = before


def check_not_paused(subject: Any) -> None:
    """Raise ValueError inside of `no_sync`."""
    if subject._farandole_pauses:
        raise ValueError("gradients cannot be averaged inside no_sync(): leave it before step() or update()")


def check_contexts(parameters: Any) -> None:
    """Raise ValueError where a parameter of Gluon's is on several devices."""
    if any(len(parameter.list_ctx()) > 1 for parameter in parameters):
        raise ValueError(_SEVERAL_CONTEXTS)


_SEVERAL_CONTEXTS = "the parameters are in several contexts: give each rank one, such as mx.gpu(hvd.local_rank())"


def _distributed(optimizer: Any, reduction: Reduction) -> Any:
    explain_kvstores()
    extend(optimizer, Distributed)
    optimizer._farandole = reduction
    return optimizer


def _users_class(optimizer: Distributed) -> Any:
    """The class of the optimizer before it was distributed."""
    return type(optimizer).__mro__[2]  # after the class that was made and Distributed


def _restored(plain: Any, reduction: Reduction) -> Any:
    return _distributed(plain.__new__(plain), reduction)


def _listed(value: Any) -> Sequence[NDArray]:
    return value if isinstance(value, list | tuple) else [value]
