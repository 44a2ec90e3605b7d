"""Collectives of values outside of models: numbers, arrays and tensors in, arrays and numbers out."""

from __future__ import annotations

from typing import Any

import torch
from farandole import Average, ReduceOp
from farandole.plugin import Compressor

from farandole_torch._adapter import Compression, Tensor
from farandole_torch._autograd import operations


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | None = None,
    compression: Compressor[Tensor] = Compression.none,
) -> Any:
    """`farandole_torch.allreduce` of anything that `torch.as_tensor` takes, as a numpy array or number."""
    how = average, name, compression, op, prescale_factor, postscale_factor
    return _value(operations.allreduce(_tensor(value), *how))


def allgather(value: Any, name: str | None = None) -> Any:
    """`farandole_torch.allgather`, likewise."""
    return _value(operations.allgather(_tensor(value), name))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """`farandole_torch.broadcast`, likewise."""
    return _value(operations.broadcast(_tensor(value), root_rank, name))


def reducescatter(value: Any, name: str | None = None, op: ReduceOp = Average) -> Any:
    """`farandole_torch.reducescatter`, likewise."""
    return _value(operations.reducescatter(_tensor(value), name=name, op=op))


def _tensor(value: Any) -> Tensor:
    return torch.as_tensor(value).detach()


def _value(tensor: Tensor) -> Any:
    return tensor.cpu().numpy()[()]  # an array without dimensions is a number
