"""Collectives of values outside of models: tensors in, tensors out; for numbers and arrays, arrays and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from farandole._api.ops import Average, ReduceOp
from farandole._keras.exchange import Framework
from farandole._training.compression import Compressor

Function = Callable[..., Any]


class Values(NamedTuple):
    """The functions for one framework."""

    allgather: Function
    allreduce: Function
    broadcast: Function
    reducescatter: Function


def values(framework: Framework) -> Values:
    """Make the functions."""
    operations, tensor_of, result_of = framework.operations, framework.tensor, framework.result
    none = framework.compression.none

    def allgather(value: Any, name: str | None = None) -> Any:
        """The plugin's `allgather`, likewise.

        Example:
            >>> hvd.allgather([1.0 * hvd.rank()]).tolist()
            [0.0, 1.0]
        """
        return result_of(value, operations.allgather(tensor_of(value), name=name))

    def allreduce(
        value: Any,
        name: str | None = None,
        average: bool | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        op: ReduceOp | None = None,
        compression: Compressor[Any] = none,
    ) -> Any:
        """The plugin's `allreduce` of anything that its framework makes a tensor of.

        Of a tensor the result is a tensor; of everything else a numpy array or a number, and in a graph a tensor.

        Example:
            >>> float(hvd.allreduce(1.0 * hvd.rank()))
            0.5
        """
        result = operations.allreduce(
            tensor_of(value),
            average=average,
            name=name,
            compression=compression,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )
        return result_of(value, result)

    def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
        """The plugin's `broadcast`, likewise.

        Example:
            >>> hvd.broadcast([1.0 * hvd.rank()], root_rank=1).tolist()
            [1.0]
        """
        return result_of(value, operations.broadcast(tensor_of(value), root_rank, name=name))

    def reducescatter(value: Any, name: str | None = None, op: ReduceOp = Average) -> Any:
        """The plugin's `reducescatter`, likewise.

        Example:
            >>> hvd.reducescatter([1.0, 1.0], op=hvd.Sum).tolist()  # of two rows each rank gets one
            [2.0]
        """
        return result_of(value, operations.reducescatter(tensor_of(value), name=name, op=op))

    return Values(allgather, allreduce, broadcast, reducescatter)
