"""A Gluon Trainer that averages the gradients over the ranks."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager

import mxnet as mx
from farandole import ProcessSet
from farandole.plugin import Compressor

from farandole_mxnet._adapter import NDArray
from farandole_mxnet._gradients import Reduction
from farandole_mxnet._operations import Compression
from farandole_mxnet._optimizer import Distributed, check_contexts, check_not_paused, pausing
from farandole_mxnet._parameter_check import compare_before_first_step
from farandole_mxnet._private import parameters_of


class DistributedTrainer(mx.gluon.Trainer):  # type: ignore[misc]
    """`mxnet.gluon.Trainer` without a kvstore, whose `step` averages the gradients over the ranks.

    `allreduce_grads()` and `update()` do it in two steps, to clip in between. In a world of one nothing is added. When
    an average fails, MXNet raises the error where the parameters are read next, and every later step raises it again.

    Example:
        >>> net = mx.gluon.nn.Dense(1, in_units=1, weight_initializer="zeros")
        >>> net.initialize()
        >>> trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
        >>> with mx.autograd.record():
        ...     loss = net(mx.nd.ones((1, 1)) * hvd.rank())
        >>> loss.backward()
        >>> trainer.step(batch_size=1)  # by the average of 0 and 1
        >>> net.weight.data().asnumpy().tolist()
        [[-0.5]]
    """

    _farandole_pauses = False  # `no_sync`
    _farandole_compared = 0  # see `compare_before_first_step`

    def __init__(
        self,
        params: object,
        optimizer: object,
        optimizer_params: Mapping[str, object] | None = None,
        compression: Compressor[NDArray] = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet | None = None,
    ) -> None:
        """A trainer of `params`, the same on all ranks.

        Args:
            params: as in Gluon.
            optimizer: a name or an mxnet.optimizer.Optimizer. Of one that is distributed the trainer takes the
                optimizer as it was, and warns: it averages the gradients itself.
            optimizer_params: with a name, the arguments of the optimizer.
            compression: what travels: `Compression.none` or `fp16`.
            gradient_predivide_factor: divide by this before the sum and by size / this after it.
            prefix: distinguishes the gradients of this trainer from another's; needed where two step at a time.
            num_groups: average all gradients in this many operations; 0 means each in its own.
            process_set: the ranks whose gradients are averaged with each other, by default all. On the others nothing
                is added.

        Raises:
            ValueError: parameters in several contexts, or an argument out of range.
        """
        if isinstance(optimizer, Distributed):
            warnings.warn(
                "DistributedTrainer averages the gradients itself, so it takes the optimizer without "
                "DistributedOptimizer: give it the optimizer as it was",
                stacklevel=2,
            )
            optimizer = optimizer.without_farandole()
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        check_contexts(parameters_of(self))
        self._reduction = Reduction(gradient_predivide_factor, num_groups, process_set, compression, prefix or "")

    def _allreduce_grads(self) -> None:
        check_not_paused(self)
        compare_before_first_step(self, parameters_of(self), self._reduction.process_set, self._reduction.prefix)
        wanted = [(i, parameter) for i, parameter in enumerate(parameters_of(self)) if parameter.grad_req != "null"]
        gradients = [parameter.list_grad()[0] for _, parameter in wanted]
        self._reduction.reduce([i for i, _ in wanted], gradients)


def no_sync(trainer: object) -> AbstractContextManager[None]:
    """A context in which backward adds to the gradients and nothing is sent, to accumulate over several batches.

    MXNet's backward adds only where `grad_req` is "add", and sends nothing by itself: the context checks the one, and
    refuses `step()`, `allreduce_grads()` and `update()` inside. After the last batch `step()` averages the sums; call
    `zero_grad()` of the parameters after it.

    Args:
        trainer: a DistributedTrainer, or an optimizer that DistributedOptimizer has returned.

    Raises:
        ValueError: something else, parameters whose gradients backward overwrites, or, from the call itself, a step
            inside.

    Example:
        >>> net = mx.gluon.nn.Dense(1, in_units=1, use_bias=False, weight_initializer="zeros")
        >>> net.initialize()
        >>> net.collect_params().setattr("grad_req", "add")
        >>> trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
        >>> def backward(number):
        ...     with mx.autograd.record():
        ...         loss = net(mx.nd.ones((1, 1)) * number)
        ...     loss.backward()
        >>> with hvd.no_sync(trainer):
        ...     backward(hvd.rank())
        >>> backward(2)
        >>> trainer.step(batch_size=1)  # by the average of 0 + 2 and 1 + 2
        >>> net.weight.data().asnumpy().tolist()
        [[-2.5]]
    """
    if isinstance(trainer, DistributedTrainer):
        return pausing(trainer, parameters_of(trainer))
    if isinstance(trainer, Distributed):
        return pausing(trainer, trainer.param_dict.values())  # type: ignore[attr-defined]
    raise ValueError(
        f"no_sync() takes a DistributedTrainer, or what DistributedOptimizer has returned, not {type(trainer).__name__}"
    )
