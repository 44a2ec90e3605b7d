"""The framework's tensors as the core's operations see them; here numpy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from farandole import ArgumentError, ArgumentTypeError
from farandole.plugin import Adapter, Buffer, DType

Tensor = np.ndarray[Any, np.dtype[Any]]

_FRAMEWORK_DTYPES = {dtype: np.dtype(dtype.title) for dtype in DType if dtype is not DType.BFLOAT16}
_DTYPES = {framework_dtype: dtype for dtype, framework_dtype in _FRAMEWORK_DTYPES.items()}


class TensorAdapter(Adapter[Tensor]):
    """Arrays in host memory; strided ones are staged."""

    def describe(self, tensor: Any) -> tuple[DType, tuple[int, ...]]:
        if not isinstance(tensor, np.ndarray):
            raise ArgumentTypeError(f"expected a numpy array, not {type(tensor).__name__}")
        if tensor.dtype not in _DTYPES:
            raise ArgumentError(f"arrays of dtype {tensor.dtype} cannot be reduced or sent")
        return _DTYPES[tensor.dtype], tensor.shape

    def buffer(self, tensor: Tensor) -> Buffer | None:
        return Buffer(tensor.ctypes.data, tensor.nbytes, tensor) if tensor.flags.carray else None

    def empty(self, like: Tensor, shape: tuple[int, ...], dtype: DType, *, host: bool = False) -> Tensor:
        return np.empty(shape, self._framework_dtype(dtype))

    def assign(self, target: Tensor, source: Tensor) -> None:
        target[...] = source

    def cast(self, tensor: Tensor, dtype: DType) -> Tensor:
        return tensor.astype(self._framework_dtype(dtype))

    def scale_(self, tensor: Tensor, factor: float) -> None:
        tensor *= factor

    def _framework_dtype(self, dtype: DType) -> np.dtype[Any]:
        if dtype not in _FRAMEWORK_DTYPES:
            raise ArgumentError(f"numpy has no {dtype.title}")
        return _FRAMEWORK_DTYPES[dtype]
