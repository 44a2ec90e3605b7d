"""DistributedOptimizer for the optimizers of TF1, tf.compat.v1.train.Optimizer; those of Keras go to the core."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

import tensorflow as tf
from farandole import Adasum, ArgumentError, Average, ProcessSet, ReduceOp
from farandole.plugin import Compressor, extend
from farandole.plugin.keras import ExchangeOptions, Groups, check_op, chosen_groups, distribute

from farandole_tensorflow._adapter import Tensor
from farandole_tensorflow._deltas import AdasumDistributed, Deltas
from farandole_tensorflow._exchange import Exchange
from farandole_tensorflow._operations import Compression
from farandole_tensorflow._perform import conditionally, unconverted

Optimizer = TypeVar("Optimizer")  # of TF1 or of Keras: which of its packages is the user's choice


def DistributedOptimizer(  # the name that Horovod's users know
    optimizer: Optimizer,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor[Tensor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups | None = None,
    process_set: ProcessSet | None = None,
    scale_local_gradients: bool = True,
) -> Optimizer:
    """Make `optimizer` reduce the gradients over all ranks before each update, and return it.

    The optimizer stays the object it is, in a subclass of its class with the same name: iterations, slots, learning
    rates and what is saved are as without Farandole. In a world of one nothing is added.

    Args:
        optimizer: a tf.compat.v1.train.Optimizer, or one of Keras.
        name: distinguishes this optimizer's gradients in messages.
        use_locking: not needed; accepted because Horovod does.
        device_dense: the same.
        device_sparse: the same.
        compression: what travels: `Compression.none`, `fp16` or `bf16`.
        sparse_as_dense: convert tf.IndexedSlices to dense gradients; without it, the rows of all ranks are gathered.
        backward_passes_per_step: how many passes add to the gradients before they are reduced and applied; they are
            added up as dense tensors. The optimizer counts each pass as an iteration.
        op: Average or Sum; for TF1's optimizers also Min, Max, Product and Adasum, with which each rank steps by its
            own gradients, and the changes of the steps are combined.
        gradient_predivide_factor: with Average, divide by this before the sum and by size / this after it.
        average_aggregated_gradients: divide the sum of the passes by how many they are.
        num_groups: the older form of an integer `groups`.
        groups: a number of groups, or lists of variables: gradients of a group are reduced as one operation.
        process_set: the ranks whose gradients are reduced with each other, by default all. On the others nothing is
            added.
        scale_local_gradients: divide the gradients of local variables, see `register_local_var`, by the number of
            ranks.

    Raises:
        ValueError: no optimizer, one that is distributed already, or an argument out of range.

    Example:
        >>> optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0))
        >>> weight, gradient = tf.Variable([0.0, 0.0]), tf.ones(2) * hvd.rank()
        >>> _ = optimizer.apply_gradients([(gradient, weight)])  # by the average of 0 and 1
        >>> weight.numpy().tolist()
        [-0.5, -0.5]
    """
    is_of_keras = not isinstance(optimizer, tf.compat.v1.train.Optimizer)
    options = ExchangeOptions(
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        passes=backward_passes_per_step,
        op=check_op(op) if is_of_keras else op,
        predivide_factor=gradient_predivide_factor,
        average_passes=average_aggregated_gradients,
        groups=chosen_groups(num_groups, groups),
        process_set=process_set,
        scale_local=scale_local_gradients,
        name=name,
    )
    if is_of_keras:
        return cast(Optimizer, distribute(tf.keras, optimizer, Exchange(options)))
    if isinstance(optimizer, Distributed | AdasumDistributed):
        raise ValueError("this optimizer is distributed already; wrap it once")
    wrapped: Any = optimizer
    exchange = Deltas(options) if op == Adasum else Exchange(options)
    extend(wrapped, AdasumDistributed if op == Adasum else Distributed)
    wrapped._farandole = exchange
    return cast(Optimizer, wrapped)


def no_sync(optimizer: object) -> AbstractContextManager[None]:
    """Refused for optimizers and tapes of TensorFlow, whose steps may be compiled before the context is entered.

    `DistributedOptimizer(optimizer, backward_passes_per_step=n)` adds the gradients of n batches up and sends once. A
    loop of its own adds up what a plain tf.GradientTape returns, and gives the sums to the distributed optimizer's
    `apply_gradients`, which sends them.

    Raises:
        ArgumentError: always.

    Example:
        >>> hvd.no_sync(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        farandole.ArgumentError: TensorFlow does not support no_sync(), ...
    """
    raise ArgumentError(
        "TensorFlow does not support no_sync(), because a compiled training step would ignore it: use "
        "DistributedOptimizer(optimizer, backward_passes_per_step=n), or add up the gradients of a plain "
        "tf.GradientTape and give the sums to the distributed optimizer's apply_gradients, which sends them"
    )


class Distributed:
    """The additions of a distributed optimizer of TF1; mixed into the user's class."""

    _farandole: Exchange
    _farandole_count: Any = None  # of the passes in the gradients that were computed last

    def register_local_var(self, var: Any) -> None:
        """Leave the gradient of this variable to each rank."""
        self._farandole.register_local_var(var)

    @unconverted
    def compute_gradients(self, *args: Any, **kwargs: Any) -> Sequence[tuple[Any, Any]]:
        """As in TensorFlow, but reduced; before the last pass of several this rank's own, which are not applied."""
        pairs = super().compute_gradients(*args, **kwargs)  # type: ignore[misc]
        gradients, variables = map(list, zip(*pairs, strict=True))
        exchange = self._farandole
        if exchange.passes == 1:
            return list(zip(exchange.reduce(gradients, variables), variables, strict=True))
        self._farandole_count = exchange.add(gradients, variables)
        indices = [index for index, variable in enumerate(variables) if exchange.has_sum(variable)]
        with tf.control_dependencies([self._farandole_count]):
            results = conditionally(
                self._farandole_count >= exchange.passes,
                lambda: [each for each in exchange.reduce(exchange.take(variables), variables) if each is not None],
                lambda: [_dense(gradients[index], variables[index]) for index in indices],
                "compute",
            )
        reduced = dict(zip(indices, results if isinstance(results, list | tuple) else [results], strict=True))
        return [(reduced.get(index), variable) for index, variable in enumerate(variables)]

    @unconverted
    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """As in TensorFlow; before the last pass of several only `global_step` goes on."""
        plain: Any = super()
        pairs, count = list(grads_and_vars), self._farandole_count
        if count is None:
            return plain.apply_gradients(pairs, global_step, name)

        def apply() -> Any:
            done = plain.apply_gradients(pairs, global_step, name)
            with tf.control_dependencies([] if tf.executing_eagerly() else [done]):
                return tf.constant(True)

        def wait() -> Any:
            done = [] if global_step is None else [global_step.assign_add(1)]
            with tf.control_dependencies([] if tf.executing_eagerly() else done):
                return tf.constant(False)

        applied = tf.cond(count >= self._farandole.passes, apply, wait)
        return applied if tf.executing_eagerly() else applied.op


def _dense(gradient: Any, variable: Any) -> Tensor:
    """For a variable without a gradient in this pass, zeros."""
    return tf.zeros_like(variable) if gradient is None else tf.convert_to_tensor(gradient)
