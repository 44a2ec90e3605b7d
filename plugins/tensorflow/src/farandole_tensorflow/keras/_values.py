"""Collectives of values outside of models: numbers, arrays and tensors in, arrays out."""

from __future__ import annotations

from typing import Any

from farandole import Average, ReduceOp
from farandole.plugin import Compressor

from farandole_tensorflow import _operations
from farandole_tensorflow._dtypes import Compression, Tensor


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | None = None,
    compression: Compressor[Tensor] = Compression.none,
) -> Any:
    """`farandole_tensorflow.allreduce` of anything that TensorFlow makes a tensor of, as a numpy array or number."""
    return _value(
        _operations.allreduce(
            value,
            average,
            compression=compression,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            name=name,
        )
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """`farandole_tensorflow.allgather`, likewise."""
    return _value(_operations.allgather(value, name))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """`farandole_tensorflow.broadcast`, likewise."""
    return _value(_operations.broadcast(value, root_rank, name))


def reducescatter(value: Any, name: str | None = None, op: ReduceOp = Average) -> Any:
    """`farandole_tensorflow.reducescatter`, likewise."""
    return _value(_operations.reducescatter(value, op=op, name=name))


def _value(tensor: Tensor) -> Any:
    """In a graph there is no value yet."""
    return tensor.numpy() if hasattr(tensor, "numpy") else tensor
