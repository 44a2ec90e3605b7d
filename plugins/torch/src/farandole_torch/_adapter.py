"""Adapter that lets the core's operations work on torch tensors."""

from __future__ import annotations

import math
import sys
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import TypeAlias

import torch
from farandole import ArgumentError, ArgumentTypeError
from farandole.plugin import Adapter, Buffer, Collectives, DeviceMemory, Direct, DType

from farandole_torch._private import is_profiler_on

Tensor: TypeAlias = torch.Tensor

TORCH_DTYPES = {dtype: getattr(torch, dtype.title) for dtype in DType if hasattr(torch, dtype.title)}
_DTYPES = {torch_dtype: dtype for dtype, torch_dtype in TORCH_DTYPES.items()}
_PLAIN = {torch.Tensor, torch.nn.Parameter}


class _Cuda(DeviceMemory[Tensor]):
    """Tensors on NVIDIA GPUs, in the order of torch's current streams."""

    def holds(self, tensor: Tensor) -> bool:
        return getattr(tensor, "is_cuda", False)

    def device_of(self, tensor: Tensor) -> torch.device:
        return tensor.device

    def buffer(self, tensor: Tensor) -> Buffer | None:
        if not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
            return None
        own = tensor if tensor.numel() else torch.empty(1, dtype=torch.uint8, device=tensor.device)
        return Buffer(own.data_ptr(), tensor.nbytes, own)

    def mark(self, tensor: Tensor) -> tuple[int, object]:
        _refuse_capture()
        _dropped_in_capture.clear()
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(tensor.device))
        return event.cuda_event, event

    def adopt(self, like: Tensor, address: int, keep: object, shape: tuple[int, ...], dtype: DType) -> Tensor:
        size_bytes = math.prod(shape) * dtype.itemsize
        if not size_bytes:
            return torch.empty(shape, dtype=TORCH_DTYPES[dtype], device=like.device)
        flat = torch.as_tensor(_Bytes(address, size_bytes, keep), device=like.device)
        return flat.view(TORCH_DTYPES[dtype]).reshape(shape)


class TensorAdapter(Adapter[Tensor]):
    """Adapter for dense tensors."""

    package = "torch"  # backward calls our hooks
    device = _Cuda() if torch.version.hip is None else None  # torch calls an AMD GPU "cuda", too

    array_type = Tensor if hasattr(Tensor, "__dlpack_c_exchange_api__") else None  # from torch 2.10 on
    empty_like = staticmethod(torch.empty_like)  # spares frames
    shows_memory = staticmethod(attrgetter("is_cpu"))  # the core itself checks for negative views
    is_profiled = staticmethod(is_profiler_on)

    def span(self, title: str) -> AbstractContextManager[object]:
        return span(title)

    def describe(self, tensor: Tensor) -> tuple[DType, tuple[int, ...]]:
        try:
            if tensor.layout is torch.strided:
                return _DTYPES[tensor.dtype], tensor.shape
        except (AttributeError, KeyError, RuntimeError):  # the last where there is no shape
            pass
        raise _indescribable(tensor)

    def buffer(self, tensor: Tensor) -> Buffer | None:
        if tensor.is_meta:
            raise ArgumentError("a tensor on the device meta has no data: move it with to_empty(), and fill it")
        if not _is_plain(tensor):
            return None
        try:
            return Buffer(tensor.data_ptr(), tensor.nbytes, tensor)
        except RuntimeError:
            raise ArgumentError(
                "a tensor without memory of its own, as torch.func has it, cannot be reduced or sent: call the "
                "operation outside of torch.func.grad, vmap and the like"
            ) from None

    def direct(self, source: Tensor, target: Tensor | None) -> tuple[Tensor, Direct] | None:
        if type(source) not in _PLAIN or (target is not source and target is not None):
            return None
        try:
            if not _is_plain(source):
                return None
            address, dtype, shape = source.data_ptr(), _DTYPES[source.dtype], source.shape
        except (KeyError, RuntimeError):  # `describe` and `buffer` report this error
            return None
        if target is source:
            return source, (address, address, dtype, shape)
        result = torch.empty_like(source)
        return result, (address, result.data_ptr(), dtype, shape)

    def pin(self, tensor: Tensor) -> object:
        alias = tensor.detach()  # keeps the storage even if `tensor.data = other` releases it
        try:
            alias.view(-1).view(torch.uint8).numpy()  # from now on nobody can resize the storage
        except RuntimeError:  # numpy is not installed; torch does not require it
            return None
        return alias

    def ready(self, tensor: Tensor) -> None:
        if tensor.is_cuda:
            _refuse_capture()
            torch.cuda.current_stream(tensor.device).synchronize()

    def empty(self, like: Tensor, shape: tuple[int, ...], dtype: DType, *, host: bool = False) -> Tensor:
        device = "cpu" if host else like.device
        return torch.empty(shape, dtype=TORCH_DTYPES[dtype], device=device, pin_memory=host and like.is_cuda)

    def assign(self, target: Tensor, source: Tensor) -> None:
        # For a strided view with the negative bit set, copy_ from a GPU returns the values with the opposite sign
        # (torch 2.11).
        target.detach().copy_(source.detach().resolve_neg().resolve_conj())

    def names_object(self, name: object) -> bool:
        return isinstance(name, str) and name.rpartition(".")[2] == "_extra_state"  # of a module, in a state_dict

    def cast(self, tensor: Tensor, dtype: DType) -> Tensor:
        if tensor.is_cuda:  # made when an operation began, perhaps on another stream, and given up once it is read here
            tensor.record_stream(torch.cuda.current_stream(tensor.device))
        return tensor.to(TORCH_DTYPES[dtype])

    def scale_(self, tensor: Tensor, factor: float) -> None:
        tensor.detach().mul_(factor)

    def adopt(self, like: Tensor, memory: memoryview, shape: tuple[int, ...], dtype: DType) -> Tensor:
        torch_dtype = TORCH_DTYPES[dtype]
        if not memory.nbytes:
            return torch.empty(shape, dtype=torch_dtype, device=like.device)
        return torch.frombuffer(memory, dtype=torch_dtype).reshape(shape).to(like.device)


class _Bytes:
    """Memory of a GPU in a form that torch takes without a copy; the tensor keeps this object, and so `keep`, alive."""

    def __init__(self, address: int, size_bytes: int, keep: object) -> None:
        self._keep = keep
        self.__cuda_array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 2,
        }

    def __del__(self) -> None:
        # Releasing the memory asks the driver what is under way on the device, which ends a graph capture with an
        # error.
        if not sys.is_finalizing() and torch.cuda.is_current_stream_capturing():
            _dropped_in_capture.append(self._keep)


_dropped_in_capture: list[object] = []  # kept until the next operation


collectives: Collectives[Tensor] = Collectives(TensorAdapter())  # results have no gradients; see _autograd
Compression = collectives.Compression


def span(title: str) -> AbstractContextManager[object]:
    """Return a context that torch's profilers show under `title`; it does nothing if no profiler is on."""
    return torch.autograd.profiler.record_function(title) if is_profiler_on() else nullcontext()


def _refuse_capture() -> None:
    if torch.cuda.is_current_stream_capturing():
        raise ArgumentError("a CUDA graph that is being captured cannot contain operations of Farandole: call it after")


def _is_plain(tensor: Tensor) -> bool:
    """Return whether the tensor's values lie in contiguous memory of the host.

    This is not so for conjugate views, whose memory holds the numbers before conjugation, and for negative views, such
    as the imaginary part of a conjugate, whose memory holds the opposite numbers.
    """
    return tensor.is_cpu and not tensor.is_neg() and not tensor.is_conj() and tensor.is_contiguous()


def _indescribable(tensor: Tensor) -> Exception:
    if not isinstance(tensor, torch.Tensor):
        return ArgumentTypeError(f"expected a torch.Tensor, not {type(tensor).__name__}; convert it with torch.tensor")
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        return ArgumentError("a parameter of a lazy module has no shape yet: run the model once before")
    if tensor.is_nested:
        return ArgumentError("nested tensors cannot be reduced or sent: convert them with to_padded_tensor()")
    if tensor.layout is not torch.strided:
        return ArgumentError(
            f"tensors of layout {tensor.layout} cannot be reduced or sent: convert them with to_dense(), or give "
            "DistributedOptimizer sparse_as_dense=True"
        )
    known = ", ".join(dtype.title for dtype in TORCH_DTYPES)
    return ArgumentError(f"tensors of dtype {tensor.dtype} cannot be reduced or sent; supported are {known}")
