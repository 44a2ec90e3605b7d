"""Adasum of what each rank's steps change: DistributedOptimizer with op=Adasum, for the optimizers of TF1.

    first pass        start = variable
    each pass         the optimizer steps by this rank's own gradients
    after the last    variable = start + Adasum over the ranks of (variable - start)

An optimizer's momentum and moments are the rank's own. As in Horovod, each pass of several is a step of its own.
Adasum is by Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf
from farandole import Adasum
from farandole.plugin import check_compressor, is_alone, predivide_factors
from farandole.plugin.keras import ExchangeOptions

from farandole_tensorflow._exchange import Variable, key_of, own_variable
from farandole_tensorflow._operations import allreduce
from farandole_tensorflow._perform import conditionally, unconverted

_SAVED = [tf.compat.v1.GraphKeys.GLOBAL_VARIABLES]  # initialized by what every program runs


class Deltas:
    """The steps of one optimizer; what `Exchange` is for gradients.

    Variables are paired with those of the other ranks by their place among those with a gradient.
    """

    def __init__(self, options: ExchangeOptions) -> None:
        """Check the remaining arguments. Groups have no effect: Adasum goes tensor by tensor."""
        predivide_factors(Adasum, options.predivide_factor)
        check_compressor(options.compression)
        self._passes, self._process_set = options.passes, options.process_set
        self._compression = options.compression
        self._name = f"{options.name}.delta" if options.name else "delta"
        self._starts: dict[int, tuple[Variable, Any]] = {}  # by key_of; with the variables, whose keys they hold
        self._count: Any = None  # of the passes since the last sum, where there are several

    def step(self, variables: Sequence[Variable], apply: Callable[[], Any]) -> Any:
        """Let the optimizer `apply` its gradients, and combine what this changes; returns the operation of both."""
        if is_alone(self._process_set):
            return apply()
        with tf.init_scope():
            self._prepare(variables)
        first, last = self._turns()
        remember, combine = partial(self._remember, variables), partial(self._combined, variables)
        with tf.control_dependencies([self._when(first, remember, lambda: tf.constant(False), "remember")]):
            applied = apply()
        with tf.control_dependencies([] if applied is None else [applied]):
            values = self._when(last, combine, lambda: [each.read_value() for each in variables], "combine")
        values = values if isinstance(values, list | tuple) else [values]
        with _after(values):
            done = _true_after([each.assign(value) for each, value in zip(variables, values, strict=True)])
        return None if tf.executing_eagerly() else done.op

    def _turns(self) -> tuple[Any, Any]:
        """Return whether this pass is the first since the last sum, and whether a sum follows it."""
        if self._passes == 1:
            return tf.constant(True), tf.constant(True)
        index = self._count.assign_add(1, read_value=True) % self._passes
        return tf.equal(index, 1), tf.equal(index, 0)

    def _prepare(self, variables: Sequence[Variable]) -> None:
        if self._count is None and self._passes > 1:
            self._count = own_variable(0, "backward_passes", _SAVED)
        for variable in variables:
            if key_of(variable) not in self._starts:
                zeros = tf.zeros(variable.shape, variable.dtype.base_dtype)
                self._starts[key_of(variable)] = variable, own_variable(zeros, "start", _SAVED)

    def _when(self, condition: Any, do: Callable[[], Any], otherwise: Callable[[], Any], what: str) -> Any:
        return do() if self._passes == 1 else conditionally(condition, do, otherwise, what)

    def _remember(self, variables: Sequence[Variable]) -> Any:
        """Copies the variables, since TF1's without a resource change in place, also in who shares their memory."""
        values = [tf.raw_ops.DeepCopy(x=each.read_value()) for each in variables]
        pairs = zip(variables, values, strict=True)
        return _true_after([self._start_of(each).assign(value, read_value=False) for each, value in pairs])

    def _combined(self, variables: Sequence[Variable]) -> list[Any]:
        starts = [self._start_of(each).read_value() for each in variables]
        deltas = [each.read_value() - start for each, start in zip(variables, starts, strict=True)]
        return [
            start + self._sum(delta, index) for index, (start, delta) in enumerate(zip(starts, deltas, strict=True))
        ]

    def _sum(self, delta: Any, index: int) -> Any:
        options: dict[str, Any] = {"compression": self._compression, "process_set": self._process_set}
        return allreduce(delta, op=Adasum, name=f"{self._name}.{index}", **options)

    def _start_of(self, variable: Variable) -> Any:
        return self._starts[key_of(variable)][1]


class AdasumDistributed:
    """The additions of a distributed optimizer of TF1 with op=Adasum; mixed into the user's class."""

    _farandole: Deltas

    @unconverted
    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """As in TensorFlow; afterwards what it has changed is combined over all ranks."""
        plain: Any = super()
        pairs = list(grads_and_vars)
        variables = [variable for gradient, variable in pairs if gradient is not None]
        return self._farandole.step(variables, lambda: plain.apply_gradients(pairs, global_step, name))


def _true_after(done: Sequence[Any]) -> Any:
    """A tensor that is there when all of them are done, as `tf.cond` wants one."""
    with _after(done):
        return tf.constant(True)


def _after(done: Sequence[Any]) -> Any:
    """A context of what runs later; eagerly it is done already."""
    return tf.control_dependencies([] if tf.executing_eagerly() else list(done))
