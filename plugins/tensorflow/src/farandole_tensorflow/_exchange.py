"""Reduces gradients over the ranks, for optimizers and tapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import farandole
import tensorflow as tf
from farandole.plugin import check_compressor, even_groups, is_alone, predivide_factors, reduction
from farandole.plugin.keras import ExchangeOptions
from farandole.plugin.keras import key_of as key_of_keras

from farandole_tensorflow._adapter import Tensor
from farandole_tensorflow._operations import allreduce, grouped_allreduce
from farandole_tensorflow._parameter_check import compare
from farandole_tensorflow._perform import conditionally, unconverted
from farandole_tensorflow._private import is_compiled
from farandole_tensorflow._rank_ops import size_op

Gradient = Any  # a tensor, tf.IndexedSlices, or None
Variable = Any  # of TensorFlow, or of Keras 3

_LOCAL = [tf.compat.v1.GraphKeys.LOCAL_VARIABLES]  # neither broadcast nor saved


class Exchange:
    """Reduces the gradients of one optimizer or tape.

    Gradients are paired with those of the other ranks by their place in the list, since names of variables count what
    only one rank may have made. Those that are None stay so. In a world of one nothing is added to the graph.
    """

    def __init__(self, options: ExchangeOptions) -> None:
        """Check the remaining arguments, see `DistributedOptimizer`."""
        self.options = options
        self._op = reduction(None, options.op)
        self._factors = predivide_factors(self._op, options.predivide_factor)
        check_compressor(options.compression)
        if isinstance(options.groups, int):
            even_groups(0, options.groups)
        self._compression, self._sparse_as_dense = options.compression, options.sparse_as_dense
        self._passes, self._average_passes, self._groups = options.passes, options.average_passes, options.groups
        self._process_set, self._scale_local = options.process_set, options.scale_local
        self._name = options.operations
        # By key_of; with the variables, without which their keys might become those of others.
        self._local: dict[int, Variable] = {}
        self._sums: dict[int, tuple[Variable, Any]] = {}  # of the gradients, dense, since the last update
        self._summed: set[int] = set()  # those to which a gradient was ever added
        self._count: Any = None  # how many passes are in them

    @property
    def passes(self) -> int:
        """The number of backward passes before an update."""
        return self._passes

    def register_local_var(self, variable: Variable) -> None:
        """Leave the gradient of this variable to each rank."""
        self._local[key_of(variable)] = variable

    def forget(self) -> None:
        """See farandole.plugin.KerasExchange. In a graph of TF1 nothing: its variables are restored like all others."""
        if self._count is not None and tf.executing_eagerly():
            self._count.assign(0)
            for _, total in self._sums.values():
                total.assign(tf.zeros_like(total))

    @unconverted
    def reduce(self, gradients: Sequence[Gradient], variables: Sequence[Variable]) -> list[Gradient]:
        """The gradients of all ranks, one for each variable."""
        results = list(gradients)
        if is_alone(self._process_set):
            return results
        wanted = []
        for index, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
            if gradient is None:
                continue
            if key_of(variable) in self._local:
                results[index] = self._own(gradient)
            else:
                wanted.append(index)
        with _after(compare([variables[index] for index in wanted], self._name, self._process_set)):
            for indices in self._grouped(wanted, gradients, variables):
                some = [self._dense(gradients[index]) for index in indices]
                for index, result in zip(indices, self._reduced(some, indices), strict=True):
                    results[index] = result
        return results

    @unconverted
    def step(
        self,
        gradients: Sequence[Gradient],
        variables: Sequence[Variable],
        build: Callable[[], None],
        apply: Callable[[list[Gradient]], Any],
        skip: Callable[[], Any],
    ) -> Any:
        """See farandole.plugin.KerasExchange."""
        if self._passes == 1:
            return apply(self.reduce(gradients, variables))
        with tf.init_scope():
            build()
        count = self.add(gradients, variables)

        def update() -> Tensor:
            apply(self.reduce(self.take(variables), variables))
            return tf.constant(True)

        def wait() -> Tensor:
            skip()
            return tf.constant(False)

        conditionally(count >= self._passes, update, wait, "step")
        return None

    def add(self, gradients: Sequence[Gradient], variables: Sequence[Variable]) -> Tensor:
        """Add the gradients of one pass to the sums; returns of how many passes they are."""
        with tf.init_scope():
            self._prepare(gradients, variables)
        pairs = [(each, variable) for each, variable in zip(gradients, variables, strict=True) if each is not None]
        self._summed |= {key_of(variable) for _, variable in pairs}
        dense = [(self._sum_of(variable), tf.convert_to_tensor(gradient)) for gradient, variable in pairs]
        with _after(total.assign_add(each, read_value=False) for total, each in dense):
            counted = self._count.assign_add(1, read_value=False)
        with _after([counted]):
            return self._count.read_value()

    def has_sum(self, variable: Variable) -> bool:
        """Return whether a pass had a gradient of this variable."""
        return key_of(variable) in self._summed

    def take(self, variables: Sequence[Variable]) -> list[Gradient]:
        """The variables' sums, or averages, which start again from zero; None where no pass had a gradient."""
        divisor = self._passes if self._average_passes else 1
        sums = [self._sum_of(each) for each in variables if self.has_sum(each)]
        totals = [each.read_value() / tf.cast(divisor, each.dtype) for each in sums]
        with tf.control_dependencies(totals):
            zeros = [each.assign(tf.zeros_like(each), read_value=False) for each in sums]
            zeros.append(self._count.assign(0, read_value=False))
        with _after(zeros):
            taken = iter([tf.identity(each) for each in totals])
        return [next(taken) if self.has_sum(each) else None for each in variables]

    def _prepare(self, gradients: Sequence[Gradient], variables: Sequence[Variable]) -> None:
        """Make the sums, also for variables without a gradient now: a function makes variables in its first trace."""
        if self._count is None:
            self._count = own_variable(0, "backward_passes", _LOCAL)
        for gradient, variable in zip(gradients, variables, strict=True):
            if key_of(variable) not in self._sums:
                dtype = variable.dtype if gradient is None else gradient.dtype
                zeros = tf.zeros(variable.shape, dtype)
                self._sums[key_of(variable)] = variable, own_variable(zeros, "gradients", _LOCAL)

    def _sum_of(self, variable: Variable) -> Any:
        return self._sums[key_of(variable)][1]

    def _dense(self, gradient: Gradient) -> Gradient:
        return tf.convert_to_tensor(gradient) if self._sparse_as_dense else gradient

    def _own(self, gradient: Gradient) -> Gradient:
        """The gradients that stay on this rank; scaled, since the losses of the other ranks do not depend on them."""
        if not self._scale_local:
            return gradient
        values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
        scaled = values / tf.cast(self._ranks(), values.dtype)
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(scaled, gradient.indices, gradient.dense_shape)
        return scaled

    def _ranks(self) -> Any:
        """How many there are when the gradients are reduced, since a graph may outlive an epoch of an elastic job."""
        if tf.executing_eagerly() or is_compiled(tf.compat.v1.get_default_graph()):
            return farandole.size() if self._process_set is None else self._process_set.size()
        return size_op(0 if self._process_set is None else self._process_set.process_set_id or 0)

    def _grouped(
        self, wanted: list[int], gradients: Sequence[Gradient], variables: Sequence[Variable]
    ) -> list[list[int]]:
        """The groups of gradients, by index, that are reduced in one operation."""
        if isinstance(self._groups, int) and self._groups:
            return [[wanted[i] for i in group] for group in even_groups(len(wanted), self._groups)]
        if not self._groups:
            # Where each operation is waited for, there is one; else in a graph each begins when its gradient is there.
            waits = tf.executing_eagerly() or is_compiled(tf.compat.v1.get_default_graph())
            return [wanted] if waits and wanted else [[index] for index in wanted]
        group_of = {key_of(each): number for number, group in enumerate(self._groups) for each in group}
        found: dict[int, list[int]] = {}
        for index in wanted:
            found.setdefault(group_of.get(key_of(variables[index]), -1 - index), []).append(index)
        return list(found.values())

    def _reduced(self, gradients: list[Gradient], indices: list[int]) -> list[Gradient]:
        how: dict[str, Any] = {
            "op": self._op,
            "prescale_factor": self._factors[0],
            "postscale_factor": self._factors[1],
            "compression": self._compression,
            "process_set": self._process_set,
            "name": f"{self._name}.{indices[0]}",
        }
        if len(gradients) == 1:
            return [allreduce(gradients[0], **how)]
        return grouped_allreduce(gradients, **how)


def own_variable(value: Any, name: str, collections: list[str]) -> Any:
    """A variable of the wrapper's own, in these collections of a graph of TF1."""
    return tf.compat.v1.Variable(value, trainable=False, collections=collections, name=name, use_resource=True)


def _after(done: Iterable[Any]) -> Any:
    """A context of what runs later; eagerly it is done already."""
    return tf.control_dependencies([each for each in done if each is not None])


def key_of(variable: Variable) -> int:
    """The same for a variable of Keras 3 and TensorFlow's inside it."""
    return id(variable) if isinstance(variable, tf.Variable) else key_of_keras(variable)
