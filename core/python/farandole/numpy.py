"""The collectives for numpy arrays.

    import farandole.numpy as fnp
    fnp.init()
    total = fnp.allreduce(array, op=fnp.Sum)

Arrays may be strided; a result is a new C-contiguous array of the kind given (a subclass stays one; masked arrays are
refused). bfloat16 arrays are those of the package ml_dtypes. See `farandole.plugin.Collectives` for what all operations
have in common.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

import farandole
from farandole import *  # noqa: F403
from farandole._api.errors import ArgumentError, ArgumentTypeError
from farandole.plugin import Adapter, Buffer, Collectives, DType

Array = np.ndarray[Any, np.dtype[Any]]

_NAMES = {dtype.title: dtype for dtype in DType if dtype is not DType.BFLOAT16}  # bfloat16 is not numpy's own
_DTYPES = {np.dtype(name): dtype for name, dtype in _NAMES.items()}
_NUMPY_DTYPES = {dtype: numpy_dtype for numpy_dtype, dtype in _DTYPES.items()}


class _ArrayAdapter(Adapter[Array]):
    array_type = np.ndarray
    empty_like = staticmethod(np.empty_like)  # type: ignore[assignment, unused-ignore]  # takes more; spares a frame

    def describe(self, tensor: Array) -> tuple[DType, tuple[int, ...]]:
        dtype = _DTYPES.get(tensor.dtype) if type(tensor) is np.ndarray else None
        return _describe_unusual(tensor) if dtype is None else (dtype, tensor.shape)

    def buffer(self, tensor: Any) -> Buffer | None:
        if not isinstance(tensor, np.ndarray) or not tensor.flags.carray:  # C-contiguous, aligned and writable
            return None
        return Buffer(_address(tensor), tensor.nbytes, tensor)

    def check_target(self, tensor: Any) -> None:
        if not isinstance(tensor, np.ndarray):
            raise ArgumentTypeError(
                f"a {type(tensor).__name__} cannot be written to; give an array to the forms in place"
            )
        if not tensor.flags.writeable:
            raise ArgumentError("the array is read-only; give a writable one to the forms in place")

    def empty(self, like: Array, shape: tuple[int, ...], dtype: DType, *, host: bool = False) -> Array:
        if type(like) is np.ndarray and dtype in _NUMPY_DTYPES:
            return np.empty(shape, _NUMPY_DTYPES[dtype])
        return np.empty_like(like, _numpy_dtype(dtype), order="C", shape=shape)

    def assign(self, target: Array, source: Array) -> None:
        target[...] = source

    def cast(self, tensor: Array, dtype: DType) -> Array:
        narrow = _numpy_dtype(dtype)
        if tensor.dtype == np.float64 and narrow.itemsize == 2:
            tensor = tensor.astype(np.float32)  # as all frameworks do, which rounds twice: the same bits everywhere
        return tensor.astype(narrow)

    def scale_(self, tensor: Array, factor: float) -> None:
        np.multiply(tensor, factor, out=tensor)

    def adopt(self, like: Any, memory: memoryview, shape: tuple[int, ...], dtype: DType) -> Array:
        array: Array = np.frombuffer(memory, np.uint8).view(_numpy_dtype(dtype)).reshape(shape)
        return array.view(type(like)) if isinstance(like, np.ndarray) else array


def _address(array: Array) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type, unused-ignore]  # of Python 3.12
    except ValueError:  # no elements, or a dtype that buffers do not know; this way is five times as slow
        address: int = array.__array_interface__["data"][0]
        return address


def _describe_unusual(tensor: Any) -> tuple[DType, tuple[int, ...]]:
    if not isinstance(tensor, np.ndarray | np.generic):
        raise ArgumentTypeError(f"expected a numpy array, not {type(tensor).__name__}; convert it with numpy.asarray")
    if isinstance(tensor, np.ma.MaskedArray):
        raise ArgumentError(
            "masked arrays cannot be reduced or sent; choose what the masked elements are with filled()"
        )
    if tensor.dtype in _DTYPES:
        return _DTYPES[tensor.dtype], tensor.shape
    if tensor.dtype.name == "bfloat16" and tensor.dtype.isnative:
        return DType.BFLOAT16, tensor.shape
    known = ", ".join(dtype.title for dtype in DType)
    raise ArgumentError(f"arrays of dtype {tensor.dtype} cannot be reduced or sent; supported are {known}")


def _numpy_dtype(dtype: DType) -> np.dtype[Any]:
    if dtype in _NUMPY_DTYPES:
        return _NUMPY_DTYPES[dtype]
    try:
        import ml_dtypes  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise ArgumentError(
            "numpy has bfloat16 arrays only with the package ml_dtypes: pip install ml_dtypes"
        ) from None
    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


_collectives: Collectives[Array] = Collectives(_ArrayAdapter())

Compression = _collectives.Compression
allgather = _collectives.allgather
allgather_async = _collectives.allgather_async
allreduce = _collectives.allreduce
allreduce_ = _collectives.allreduce_
allreduce_async = _collectives.allreduce_async
allreduce_async_ = _collectives.allreduce_async_
alltoall = _collectives.alltoall
alltoall_async = _collectives.alltoall_async
broadcast = _collectives.broadcast
broadcast_ = _collectives.broadcast_
broadcast_async = _collectives.broadcast_async
broadcast_async_ = _collectives.broadcast_async_
broadcast_parameters = _collectives.broadcast_parameters
grouped_allgather = _collectives.grouped_allgather
grouped_allgather_async = _collectives.grouped_allgather_async
grouped_allreduce = _collectives.grouped_allreduce
grouped_allreduce_ = _collectives.grouped_allreduce_
grouped_allreduce_async = _collectives.grouped_allreduce_async
grouped_allreduce_async_ = _collectives.grouped_allreduce_async_
grouped_reducescatter = _collectives.grouped_reducescatter
grouped_reducescatter_async = _collectives.grouped_reducescatter_async
persistent_allreduce = _collectives.persistent_allreduce
reducescatter = _collectives.reducescatter
reducescatter_async = _collectives.reducescatter_async
sparse_allreduce = _collectives.sparse_allreduce
sparse_allreduce_async = _collectives.sparse_allreduce_async

__all__ = [
    "Compression",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_parameters",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "persistent_allreduce",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce",
    "sparse_allreduce_async",
]
__all__ += farandole.__all__
