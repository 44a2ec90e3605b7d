"""Checksums of parameters, computed on the parameters' devices, to check that all ranks start with the same ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from farandole.plugin.parameter_check import NOT_COMPARED, checks_parameters

from farandole_torch._adapter import Tensor
from farandole_torch._owners import Parameter

_ROW_BYTES = 4096


@torch.no_grad()  # type: ignore[untyped-decorator]  # torch is not read
def checksums(parameters: Sequence[Parameter], wanted: Sequence[bool]) -> list[int]:
    """Return the checksum of each parameter, or NOT_COMPARED for those that are not wanted or have no plain memory.

    Read each parameter once, and wait once for each device.
    """
    result = [NOT_COMPARED] * len(parameters)
    if not checks_parameters():
        return result
    sums: dict[torch.device, list[tuple[int, Tensor]]] = {}
    for index, parameter in enumerate(parameters):
        if wanted[index] and _is_plain(parameter):
            sums.setdefault(parameter.device, []).append((index, _checksum(parameter)))
    for pairs in sums.values():
        indices, of_device = zip(*pairs, strict=True)
        for index, value in zip(indices, torch.stack(of_device).tolist(), strict=True):
            result[index] = value or 1
    return result


def _is_plain(parameter: Parameter) -> bool:
    return parameter.layout is torch.strided and not parameter.is_meta and not parameter.is_quantized


def _checksum(parameter: Parameter) -> Tensor:
    """Return the sum modulo 2^64 of the whole rows' sums and the remaining words, each times an odd factor for its
    position.
    """
    flat = parameter.detach().resolve_conj().resolve_neg().contiguous().view(-1)
    content = flat.view(torch.uint8)
    if content.storage_offset() % 8:
        content = content.clone()
    whole = content.numel() // _ROW_BYTES * _ROW_BYTES
    rest = content.new_zeros(-(-(content.numel() - whole) // 8) * 8)
    rest[: content.numel() - whole] = content[whole:]
    rows = content[:whole].view(torch.int64).view(-1, _ROW_BYTES // 8).sum(1)
    words = torch.cat([rows, rest.view(torch.int64)])
    return (words * (2 * torch.arange(len(words), device=words.device) + 1)).sum()
