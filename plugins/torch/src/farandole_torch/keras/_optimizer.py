"""DistributedOptimizer for Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import farandole.keras
import keras
from farandole import Average, ProcessSet, ReduceOp
from farandole.keras import Groups, check_op, chosen_groups, variables_of
from farandole.plugin import Compressor

from farandole_torch._adapter import Compression, Tensor
from farandole_torch.keras._exchange import Exchange


def DistributedOptimizer(  # the name that Horovod's users know
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor[Tensor] = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups | None = None,
    process_set: ProcessSet | None = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Make an optimizer of Keras reduce the gradients over all ranks before each update, and return it.

    The optimizer stays the object it is, in a subclass of its class with the same name: iterations, slots, learning
    rates and what is saved are as without Farandole. The gradients are reduced where Keras applies them: in `fit`,
    `apply` and `apply_gradients`, before clipping. A LossScaleOptimizer may be around this optimizer or in it. In a
    world of one nothing is added.

    Args:
        optimizer: a keras.optimizers.Optimizer.
        name: distinguishes this optimizer's gradients in messages, and in timelines.
        device_dense: not needed; accepted because Horovod does.
        device_sparse: the same.
        compression: what travels: `Compression.none`, `fp16` or `bf16`.
        sparse_as_dense: convert sparse gradients, which Keras itself does not make, to dense ones; without it they are
            a ValueError.
        gradient_predivide_factor: with Average, divide by this before the sum and by size / this after it.
        op: Average or Sum.
        backward_passes_per_step: how many passes add to the gradients before they are reduced and applied. The
            optimizer counts each pass as an iteration.
        average_aggregated_gradients: divide the sum of the passes by how many they are.
        num_groups: the older form of an integer `groups`.
        groups: a number of groups, or lists of variables: gradients of a group are reduced as one operation.
        process_set: the ranks whose gradients are reduced with each other, by default all. On the others nothing is
            added.
        scale_local_gradients: divide the gradients of local variables, see `register_local_var`, by the number of
            ranks.

    Raises:
        ValueError: no optimizer of Keras, one that is distributed already, an `op` other than Average and Sum, or an
            argument out of range.
    """
    exchange = Exchange(
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        passes=backward_passes_per_step,
        op=check_op(op),
        predivide_factor=gradient_predivide_factor,
        average_passes=average_aggregated_gradients,
        groups=chosen_groups(num_groups, groups),
        process_set=process_set,
        scale_local=scale_local_gradients,
        name=name,
    )
    return farandole.keras.distribute(keras, optimizer, exchange)


def PartialDistributedOptimizer(optimizer: Any, *args: Any, local_layers: Any = None, **options: Any) -> Any:
    """`DistributedOptimizer`, with its arguments, that leaves the gradients of some layers to each rank.

    `local_layers` is a layer or a list of layers, which must have their variables already. Their gradients are divided
    by the number of ranks unless `scale_local_gradients=False`.
    """
    variables: Sequence[Any] = variables_of(local_layers)
    made = DistributedOptimizer(optimizer, *args, **options)
    for variable in variables:
        made.register_local_var(variable)
    return made
