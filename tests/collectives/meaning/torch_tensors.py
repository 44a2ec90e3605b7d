"""Tensors of PyTorch from arrays of NumPy and back, in the layouts that a user's tensors have."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from farandole_torch import Compression
from meanings import DTYPES, FLOATS
from torch_device import DEVICE

LAYOUTS = ("whole", "strided", "window", "offset", "transposed", "channels_last", "expanded", "negated", "sliced rows")
COMPRESSIONS = {"float16": Compression.fp16, "bfloat16": Compression.bf16}
_UNTOUCHED = 77  # stands in memory beside a tensor


class Placed(NamedTuple):
    """A tensor, and those parts of its memory that are not its own."""

    tensor: torch.Tensor
    beside: tuple[torch.Tensor, ...] = ()

    def is_whole(self) -> bool:
        """Returns whether nothing was written beside the tensor."""
        return all(bool((part == _UNTOUCHED).all()) for part in self.beside)


def to_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype == DTYPES["bfloat16"]:
        return torch.from_numpy(np.array(array.view(np.int16))).view(torch.bfloat16).to(DEVICE)
    return torch.from_numpy(np.array(array)).to(DEVICE)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().contiguous().resolve_neg().resolve_conj().cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(DTYPES["bfloat16"])
    return tensor.numpy()


def place(array: np.ndarray, layout: str) -> Placed:
    """The array as a tensor of this layout, or whole in memory where its shape or dtype has no such layout."""
    tensor = to_torch(array)
    dims = tensor.dim()
    if layout == "strided" and dims:
        base = _filled(tensor, (*tensor.shape[:-1], 2 * tensor.shape[-1]))
        return _copied(base[..., ::2], tensor, base[..., 1::2])
    if layout == "window" and dims:
        base = _filled(tensor, (*tensor.shape[:-1], tensor.shape[-1] + 2))
        return _copied(base[..., 1:-1], tensor, base[..., 0], base[..., -1])
    if layout == "sliced rows" and dims:
        base = _filled(tensor, (3 * tensor.shape[0], *tensor.shape[1:]))
        return _copied(base[1::3], tensor, base[0::3], base[2::3])
    if layout == "offset":
        base = _filled(tensor, (tensor.numel() + 3,))
        return _copied(base[3:].view(tensor.shape), tensor, base[:3])
    if layout == "transposed" and dims > 1:
        return Placed(tensor.transpose(0, -1).contiguous().transpose(0, -1))
    if layout == "channels_last" and dims == 4:
        return Placed(tensor.contiguous(memory_format=torch.channels_last))
    if layout == "expanded" and dims and tensor.shape[0]:
        return Placed(tensor[:1].clone().expand(tensor.shape))
    if layout == "negated" and array.dtype in (np.float32, np.float64):
        return Placed(torch.complex(torch.zeros_like(tensor), -tensor).conj().imag)
    if layout == "negated" and tensor.is_complex():
        return Placed(torch.conj_physical(tensor).conj())
    return Placed(tensor)


def _filled(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.full(shape, _UNTOUCHED, dtype=tensor.dtype, device=DEVICE)


def _copied(view: torch.Tensor, tensor: torch.Tensor, *beside: torch.Tensor) -> Placed:
    if tensor.dtype == torch.bool:  # which has no value of its own to stand beside it
        beside = ()
    view.copy_(tensor)
    return Placed(view, beside)


def to_sparse(array: np.ndarray, dims: int, doubled: bool) -> torch.Tensor:
    """As a COO tensor of so many sparse dimensions; `doubled`: some elements are there twice, and add up."""
    sparse = to_torch(array).to_sparse(dims)
    if not doubled:
        return sparse
    indices, values = sparse.indices(), sparse.values()
    half = values * 0.5 if array.dtype.name in FLOATS else values // 2
    both = torch.cat([half, values - half])
    return torch.sparse_coo_tensor(torch.cat([indices, indices], 1), both, sparse.shape)
