"""Torch tensors as the core's operations see them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from farandole.plugin import Adapter, Buffer, Collectives, DType

Tensor = Any  # torch.Tensor; torch is not read by the type checker

TORCH_DTYPES = {dtype: getattr(torch, dtype.title) for dtype in DType if hasattr(torch, dtype.title)}
_DTYPES = {torch_dtype: dtype for dtype, torch_dtype in TORCH_DTYPES.items()}


class TensorAdapter(Adapter[Tensor]):
    """Dense tensors; those on a GPU are staged through pinned host memory."""

    package = "torch"  # backward calls our hooks

    is_profiled = staticmethod(torch.autograd._profiler_enabled)

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
            raise ValueError("a tensor on the device meta has no data: move it with to_empty(), and fill it")
        # The bits of a negative view, such as the imaginary part of a conjugate, are those of the opposite numbers.
        if not (tensor.is_cpu and tensor.is_contiguous()) or tensor.is_neg():
            return None
        return Buffer(tensor.data_ptr(), tensor.nbytes, tensor)

    def ready(self, tensor: Tensor) -> None:
        if tensor.is_cuda:
            torch.cuda.current_stream(tensor.device).synchronize()

    def empty(self, like: Tensor, shape: tuple[int, ...], dtype: DType, *, host: bool = False) -> Tensor:
        device = "cpu" if host else like.device
        return torch.empty(shape, dtype=TORCH_DTYPES[dtype], device=device, pin_memory=host and like.is_cuda)

    def assign(self, target: Tensor, source: Tensor) -> None:
        target.detach().copy_(source.detach())

    def cast(self, tensor: Tensor, dtype: DType) -> Tensor:
        return tensor.to(TORCH_DTYPES[dtype])

    def scale_(self, tensor: Tensor, factor: float) -> None:
        tensor.detach().mul_(factor)

    def adopt(self, like: Tensor, memory: memoryview, shape: tuple[int, ...], dtype: DType) -> Tensor:
        torch_dtype = TORCH_DTYPES[dtype]
        if not memory.nbytes:
            return torch.empty(shape, dtype=torch_dtype, device=like.device)
        return torch.frombuffer(memory, dtype=torch_dtype).reshape(shape).to(like.device)


collectives: Collectives[Tensor] = Collectives(TensorAdapter())  # whose results have no gradients; see _autograd
Compression = collectives.Compression


def span(title: str) -> AbstractContextManager[object]:
    """A context that torch's profilers show under `title`; nothing where none is on."""
    profiler = torch.autograd.profiler
    return profiler.record_function(title) if torch.autograd._profiler_enabled() else nullcontext()


def _indescribable(tensor: Tensor) -> Exception:
    if not isinstance(tensor, torch.Tensor):
        return TypeError(f"expected a torch.Tensor, not {type(tensor).__name__}; convert it with torch.tensor")
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        return ValueError("a parameter of a lazy module has no shape yet: run the model once before")
    if tensor.is_nested:
        return ValueError("nested tensors cannot be reduced or sent: convert them with to_padded_tensor()")
    if tensor.layout is not torch.strided:
        return ValueError(
            f"tensors of layout {tensor.layout} cannot be reduced or sent: convert them with to_dense(), or give "
            "DistributedOptimizer sparse_as_dense=True"
        )
    known = ", ".join(dtype.title for dtype in TORCH_DTYPES)
    return ValueError(f"tensors of dtype {tensor.dtype} cannot be reduced or sent; supported are {known}")
