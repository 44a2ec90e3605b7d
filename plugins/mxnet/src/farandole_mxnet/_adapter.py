"""MXNet's arrays as the core's operations see them."""

from __future__ import annotations

from typing import Any, TypeAlias

import mxnet as mx
import numpy as np
from farandole import ArgumentError, ArgumentTypeError
from farandole.plugin import Adapter, Buffer, DType

from farandole_mxnet._private import address_of

NDArray: TypeAlias = mx.nd.NDArray
"""Any object for mypy, since MXNet has no types; pyright reads the class."""

_NAMES = ("uint8", "int8", "int32", "int64", "float16", "float32", "float64", "bool")  # those that MXNet computes
_DTYPES = {np.dtype(name).type: DType[name.upper()] for name in _NAMES}
_MXNET_DTYPES = {dtype: kind for kind, dtype in _DTYPES.items()}


class NDArrayAdapter(Adapter[NDArray]):
    """Dense arrays; those on a GPU are staged in host memory."""

    package = "mxnet"  # its trainers call our optimizer

    def describe(self, tensor: NDArray) -> tuple[DType, tuple[int, ...]]:
        if not isinstance(tensor, mx.nd.NDArray):
            raise ArgumentTypeError(f"expected an mxnet NDArray, not {type(tensor).__name__}")
        if tensor.stype != "default":
            raise ArgumentError(
                f"{tensor.stype} arrays cannot be reduced or sent: convert them with tostype('default')"
            )
        if tensor.dtype not in _DTYPES:
            raise ArgumentError(
                f"arrays of dtype {tensor.dtype} cannot be reduced or sent; known are {', '.join(_NAMES)}"
            )
        return _DTYPES[tensor.dtype], tensor.shape

    def ready(self, tensor: NDArray) -> None:
        tensor.wait_to_read()

    def buffer(self, tensor: NDArray) -> Buffer | None:
        if tensor.context.device_type == "gpu":
            return None
        tensor.wait_to_read()
        return Buffer(address_of(tensor), tensor.size * _DTYPES[tensor.dtype].itemsize, tensor)

    def empty(self, like: NDArray, shape: tuple[int, ...], dtype: DType, *, host: bool = False) -> NDArray:
        make = mx.np.empty if isinstance(like, mx.np.ndarray) else mx.nd.empty
        return make(shape, dtype=_mxnet_dtype(dtype), ctx=mx.cpu() if host else like.context)

    def assign(self, target: NDArray, source: NDArray) -> None:
        source.copyto(target)
        target.wait_to_read()

    def cast(self, tensor: NDArray, dtype: DType) -> NDArray:
        return tensor.astype(_mxnet_dtype(dtype))

    def scale_(self, tensor: NDArray, factor: float) -> None:
        tensor *= factor


def _mxnet_dtype(dtype: DType) -> Any:
    if dtype not in _MXNET_DTYPES:
        raise ArgumentError(f"MXNet has no {dtype.title}; it has {', '.join(_NAMES)}")
    return _MXNET_DTYPES[dtype]
