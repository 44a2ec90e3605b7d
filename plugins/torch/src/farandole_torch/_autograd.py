"""Gradients of the operations, as in Horovod, for the asynchronous forms too.

That of an allreduce is the allreduce of the gradients, with the same reduction and factors. Those of allgather and
broadcast are averages over the ranks of the set: of the gathered gradients each rank keeps its own rows; of the
broadcast tensor's gradients the root keeps all and the others none. That of a reducescatter is the allgather of the
gradients, times the size of the set for a sum. Rows that alltoall has moved go back. Ranks that have joined give zeros.

The functions here start an operation, and record it where a tensor requires a gradient:

    tensors --collectives--> handle --wait--> results --recorded--> results that remember their tensors
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from farandole import Average, Handle, ProcessSet, ReduceOp, Sum, rank, size
from farandole.plugin import Collectives, check_linear

from farandole_torch._adapter import Tensor, TensorAdapter

collectives: Collectives[Tensor] = Collectives(TensorAdapter())
_Gradients = tuple[Tensor | None, ...]


@dataclass(frozen=True)
class Call:
    """What a call says beside its tensors."""

    name: str | None
    process_set: ProcessSet | None
    grouped: bool = False
    op: ReduceOp = Average
    prescale: float = 1.0
    postscale: float = 1.0
    root_rank: int = 0

    def of_gradient(self, op: ReduceOp | None = None) -> Call:
        """The same in backward, under a name of its own, where there is one."""
        return replace(self, name=f"{self.name}.gradient" if self.name else None, op=op or self.op)

    @property
    def place(self) -> int:
        """This rank's among the members."""
        return rank() if self.process_set is None else self.process_set.rank() or 0

    @property
    def members(self) -> int:
        """The number of ranks that take part, if the set is one; the core says what is wrong with it otherwise."""
        return (self.process_set.size() if isinstance(self.process_set, ProcessSet) else None) or size()


def differentiates(given: Any) -> bool:
    """Whether the result of an operation on this tensor, or these, is to have a gradient."""
    tensors = given if isinstance(given, list | tuple) else [given]
    return torch.is_grad_enabled() and any(getattr(tensor, "requires_grad", False) for tensor in tensors)


def reduce(tensors: Sequence[Tensor], call: Call) -> Handle[list[Tensor]]:
    """Allreduce."""
    how = None, call.name, call.op, call.prescale, call.postscale, call.process_set
    if call.grouped:
        handle = collectives.grouped_allreduce_async(tensors, *how)
    else:
        handle = collectives.allreduce_async(tensors[0], *how).map(_listed)
    return _recorded(_Reduction, handle, call, tensors)


def gather(tensors: Sequence[Tensor], call: Call) -> Handle[list[Tensor]]:
    """Allgather."""
    if call.grouped:
        handle = collectives.grouped_allgather_async(tensors, call.name, call.process_set)
    else:
        handle = collectives.allgather_async(tensors[0], call.name, call.process_set).map(_listed)
    return _recorded(_Gathering, handle, call, tensors)


def spread(tensor: Tensor, call: Call) -> Handle[Tensor]:
    """Broadcast."""
    handle = collectives.broadcast_async(tensor, call.root_rank, call.name, call.process_set).map(_listed)
    return _recorded(_Spreading, handle, call, [tensor]).map(_only)


def exchange(tensor: Tensor, splits: Any, call: Call) -> Handle[tuple[Tensor, Tensor]]:
    """alltoall: what came, and how many rows from each rank, as int64 where `splits` is a list."""
    handle = collectives.alltoall_async(tensor, splits, call.name, call.process_set)
    if not differentiates(tensor):
        return handle

    def record(both: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            sent = [int(rows) for rows in splits]
            return _Exchange.apply(call, both[0], (sent, both[1].tolist()), tensor), both[1]

    return handle.map(record)


def equal_splits(tensor: Tensor, call: Call) -> list[int] | None:
    """What alltoall without splits gives each rank, said; None where that cannot be, for the core to refuse."""
    rows = tensor.shape[0] if tensor.dim() else 1
    return None if rows % call.members else [rows // call.members] * call.members


def scatter(tensors: Sequence[Tensor], call: Call) -> Handle[list[Tensor]]:
    """Reducescatter."""
    how = call.name, call.op, call.process_set, call.prescale, call.postscale
    if call.grouped:
        handle = collectives.grouped_reducescatter_async(tensors, *how)
    else:
        handle = collectives.reducescatter_async(tensors[0], *how).map(_listed)
    return _recorded(_Scattering, handle, call, tensors)


def _recorded(
    function: Any, handle: Handle[list[Tensor]], call: Call, tensors: Sequence[Tensor]
) -> Handle[list[Tensor]]:
    if not differentiates(tensors):
        return handle

    def record(results: list[Tensor]) -> list[Tensor]:
        with torch.enable_grad():  # whoever waits may be under no_grad
            return list(function.apply(call, results, *tensors))

    return handle.map(record)


class _Reduction(torch.autograd.Function):  # type: ignore[misc]  # torch is not read
    @staticmethod
    def forward(ctx: Any, call: Call, results: list[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.call = call
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> _Gradients:
        check_linear(ctx.call.op, "allreduce", "tensor.detach()")
        return None, None, *reduce(gradients, ctx.call.of_gradient()).wait()


class _Gathering(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, call: Call, results: list[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.call, ctx.rows = call, [len(tensor) for tensor in tensors]
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> _Gradients:
        call = ctx.call.of_gradient(Average)
        averages = reduce(gradients, call).wait()
        rows_name = f"{call.name}.rows" if call.name else None
        # A row for each rank that has not joined: its place, and the rows of each of its tensors.
        rows = collectives.allgather(torch.tensor([[call.place, *ctx.rows]]), rows_name, call.process_set)
        starts = rows[rows[:, 0] < call.place, 1:].sum(0).tolist()
        mine = (each[start : start + count] for each, start, count in zip(averages, starts, ctx.rows, strict=True))
        return None, None, *mine


class _Spreading(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, call: Call, results: list[Tensor], tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.call = call
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> _Gradients:
        (average,) = reduce([gradient], ctx.call.of_gradient(Average)).wait()
        if rank() != ctx.call.root_rank:  # zeros that remember the average: all ranks are in the second derivative
            average = average.masked_fill(torch.ones((), dtype=torch.bool, device=average.device), 0)
        return None, None, average


class _Exchange(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, call: Call, result: Tensor, rows: tuple[list[int], list[int]], tensor: Tensor) -> Tensor:
        ctx.call, (ctx.sent, ctx.received) = call, rows
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> _Gradients:
        returned, counts = exchange(gradient, ctx.received, ctx.call.of_gradient()).wait()
        return None, None, None, _with_lost_rows(returned, counts.tolist(), ctx.sent)


class _Scattering(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, call: Call, results: list[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.call, ctx.rows = call, [len(tensor) for tensor in tensors]
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> _Gradients:
        call = ctx.call
        check_linear(call.op, "reducescatter", "tensor.detach()")
        factor = call.prescale * call.postscale * (call.members if call.op is Sum else 1)
        gathered = gather(gradients, call.of_gradient()).wait()
        if [len(each) for each in gathered] != ctx.rows:  # some have joined, and all that have not see it
            name = f"{call.name}.gradient.members" if call.name else None
            present = collectives.allgather(torch.tensor([call.place]), name, call.process_set).tolist()
            gathered = [
                _with_lost_rows(each, *_shares(rows, call.members, present))
                for each, rows in zip(gathered, ctx.rows, strict=True)
            ]
        return None, None, *(each * factor if factor != 1 else each for each in gathered)


def _shares(rows: int, members: int, present: list[int]) -> tuple[list[int], list[int]]:
    """How many rows of a reducescatter's gradient came from each rank, and how many it has got."""
    each, more = divmod(rows, members)
    got = [each + (place < more) for place in range(members)]
    return [got[place] if place in present else 0 for place in range(members)], got


def _with_lost_rows(tensor: Tensor, came: list[int], wanted: list[int]) -> Tensor:
    """With zeros where a rank gave no rows because it has joined."""
    if came == wanted:
        return tensor
    parts = zip(tensor.split(came), came, wanted, strict=True)
    return torch.cat([part if has == rows else part.new_zeros(rows, *part.shape[1:]) for part, has, rows in parts])


def _listed(result: Tensor) -> list[Tensor]:
    return [result]


def _only(results: list[Tensor]) -> Tensor:
    return results[0]
