"""DistributedOptimizer for Keras."""

from __future__ import annotations

from typing import Any

import farandole.keras
import tensorflow as tf
from farandole import Average, ProcessSet, ReduceOp
from farandole.keras import check_op, chosen_groups, variables_of
from farandole.plugin import Compressor

from farandole_tensorflow._dtypes import Compression, Tensor
from farandole_tensorflow._exchange import Exchange, Groups


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
    groups: Groups = None,
    process_set: ProcessSet | None = None,
    scale_local_gradients: bool = True,
) -> Any:
    """`farandole_tensorflow.DistributedOptimizer` for an optimizer of Keras, with Horovod's order of arguments.

    The gradients are reduced where Keras applies them: in `fit`, `minimize`, `apply` and `apply_gradients`, before
    clipping. A LossScaleOptimizer may be around this optimizer or in it.

    Raises:
        ValueError: no optimizer of Keras, one that is distributed already, an `op` other than Average and Sum, or an
            argument out of range.
    """
    return distributed(
        optimizer,
        Exchange(
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
        ),
    )


def PartialDistributedOptimizer(
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
    groups: Groups = None,
    process_set: ProcessSet | None = None,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """`DistributedOptimizer`, with its arguments, that leaves the gradients of some layers to each rank.

    `local_layers` is a layer or a list of layers, which must have their variables already. Their gradients are divided
    by the number of ranks unless `scale_local_gradients=False`.
    """
    variables = variables_of(local_layers)
    made = DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        backward_passes_per_step,
        average_aggregated_gradients,
        0,
        groups,
        process_set,
        scale_local_gradients,
    )
    for variable in variables:
        made.register_local_var(variable)
    return made


def distributed(optimizer: Any, exchange: Exchange) -> Any:
    """The optimizer, whose gradients go through `exchange` from now on."""
    return farandole.keras.distribute(tf.keras, optimizer, exchange)
