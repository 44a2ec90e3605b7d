"""The operations of a group that move tensors without reducing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from farandole import Sum

from farandole_torch._adapter import TORCH_DTYPES, Tensor, collectives
from farandole_torch._group import Group
from farandole_torch._work import Work

_KNOWN = frozenset(TORCH_DTYPES.values())


class Moves(Group):
    """broadcast, all_gather, gather, scatter, all_to_all and barrier in all their forms."""

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Work:
        root, process_set = self._ranks[opts.rootRank], self._in_order()
        carried = [as_known(each) for each in tensors]
        handles = [collectives.broadcast_async_(each, root, process_set=process_set) for each in carried]
        return Work(self, handles, tensors, title="broadcast", inputs=tensors)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Work:
        return self._gathered([inputs[0]], lambda all: fill_flat(outputs[0], all[0]), outputs, "all_gather")

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        return self.all_gather_single_coalesced([output], [input])

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        return self._gathered(inputs, lambda all: fill(outputs, all), outputs, "all_gather_into_tensor")

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Work:
        def fill_all(gathered: list[Tensor]) -> None:  # outputs: for each rank, all its tensors
            for index, flat in enumerate(gathered):
                fill_flat([of_rank[index] for of_rank in outputs], flat)

        return self._gathered(inputs, fill_all, outputs, "all_gather")

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Work:
        sent = [inputs[0].new_empty(0)] * self.getSize()
        sent[opts.rootRank] = inputs[0]
        return self._exchanged(sent, outputs[0] if opts.rootRank == self._rank else [], "gather", inputs, outputs)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work:
        is_root = opts.rootRank == self._rank
        sent = inputs[0] if is_root else [outputs[0].new_empty(0)] * self.getSize()
        received = [outputs[0].new_empty(0)] * self.getSize()
        received[opts.rootRank] = outputs[0]
        return self._exchanged(sent, received, "scatter", sent if is_root else outputs, outputs)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        return self._exchanged(inputs, outputs, "all_to_all", inputs, outputs)

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_splits: list[int], input_splits: list[int], opts: Any = None
    ) -> Work:
        size = self.getSize()
        sent = input.split(input_splits) if input_splits else input.tensor_split(size)
        received = output.split(output_splits) if output_splits else output.tensor_split(size)
        return self._exchanged(sent, received, "all_to_all", [input], [output], input)

    def barrier(self, opts: Any = None) -> Work:
        handle = collectives.allreduce_async_(torch.zeros(1, dtype=torch.uint8), op=Sum, process_set=self._in_order())
        timeout = getattr(opts, "timeout", None)
        return Work(self, [handle], [], title="barrier", limit_s=timeout.total_seconds() if timeout else 0)

    def _gathered(
        self, inputs: Sequence[Tensor], fill_in: Callable[[list[Tensor]], None], result: list[Any], title: str
    ) -> Work:
        def by_rank(gathered: list[Tensor]) -> list[Tensor]:
            flats = [flat.view(each.dtype) for flat, each in zip(gathered, inputs, strict=True)]
            return [self.by_rank(each) for each in flats]

        flats = [as_known(each).reshape(-1) for each in inputs]
        handle = collectives.grouped_allgather_async(flats, process_set=self._in_order())
        return Work(self, [handle.map(by_rank).map(fill_in)], result, title=title, inputs=inputs)

    def _exchanged(
        self,
        sent: Sequence[Tensor],
        received: Sequence[Tensor],
        title: str,
        inputs: Sequence[Tensor],
        result: list[Any],
        whole: Tensor | None = None,
    ) -> Work:
        """Send one tensor to each rank. `received`: what to fill, one from each; `whole`: what `sent` is split from."""
        parts = [as_known(sent[rank]).reshape(-1) for rank in self.rank_at]
        targets = [received[rank] for rank in self.rank_at] if received else []
        flat = _joined(parts) if whole is None or self.positions is not None else as_known(whole).reshape(-1)
        handle = collectives.alltoall_async(flat, [each.numel() for each in parts], process_set=self._in_order())
        handles = [handle.map(lambda both: fill_flat(targets, both[0]))]
        return Work(self, handles, result, title=title, inputs=inputs)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Return one tensor with the values of flat ones: one of them, without a copy, if the others are empty."""
    full = [each for each in parts if each.numel()]
    return torch.cat(full) if len(full) > 1 else full[0] if full else parts[0]


def as_known(tensor: Tensor) -> Tensor:
    """Return the tensor, or its bytes if the core does not know the element type, such as 8-bit floats."""
    return tensor if tensor.dtype in _KNOWN else tensor.view(torch.uint8)


def fill(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors to tensors with the same numbers of elements."""
    with torch.no_grad():
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source if source.shape == target.shape else source.reshape(target.shape))


def fill_flat(targets: Sequence[Tensor], flat: Tensor) -> None:
    """Copy the parts of a flat tensor to `targets`; `flat` may hold them as bytes."""
    if targets:
        flat = flat.reshape(-1).view(targets[0].dtype)
        fill(targets, flat.split([each.numel() for each in targets]))
