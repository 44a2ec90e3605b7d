"""Gradients of the operations, as in Horovod, for the asynchronous forms too.

The gradient of an allreduce is the allreduce of the gradients, with the same reduction and factors. The gradients of
allgather and broadcast are averages over the ranks of the set: each rank keeps its own rows of the gathered gradients;
the root keeps all gradients of the broadcast tensor and the other ranks none. The gradient of a reducescatter is the
allgather of the gradients, times the size of the set for a sum. The gradient of an alltoall returns each row to the
rank that sent it. Ranks that have joined give zeros.

Gradients are reduced by differentiable operations, so they have gradients in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from farandole import Average, ProcessSet, ReduceOp, Sum, get_process_set_ids_and_ranks, global_process_set, rank
from farandole.plugin import Collectives, Kind, Parameters, check_linear

from farandole_torch._adapter import Tensor, collectives

_Gradients = tuple[Tensor | None, ...]


@dataclass(frozen=True)
class _Call:
    """The arguments of a call other than its tensors."""

    name: str
    op: ReduceOp
    root_rank: int
    prescale: float
    postscale: float
    process_set: ProcessSet

    @classmethod
    def of(cls, parameters: Parameters) -> _Call:
        name, op, root_rank, prescale, postscale, number = parameters
        process_set = ProcessSet(get_process_set_ids_and_ranks()[number]) if number else global_process_set
        return cls(name, ReduceOp(op), root_rank, prescale, postscale, process_set)

    def of_gradient(self, what: str = "") -> _Call:
        """Return the same call for backward, under a name of its own if this call has a name."""
        return replace(self, name=f"{self.name}.gradient{what}" if self.name else "")

    @property
    def place(self) -> int:
        """The position of this rank among the members."""
        return self.process_set.rank() or 0

    @property
    def members(self) -> int:
        """The number of ranks that take part."""
        return self.process_set.size() or 1


def differentiates(tensor: Tensor) -> bool:
    """Return whether the result of an operation on this tensor needs a gradient."""
    return torch.is_grad_enabled() and getattr(tensor, "requires_grad", False)


class _Recorder:
    """See farandole.plugin.Recorder."""

    wants = staticmethod(differentiates)

    def record(
        self, kind: Kind, sources: Sequence[Tensor], parameters: Parameters, splits: Sequence[int]
    ) -> Callable[[list[Tensor]], list[Tensor]]:
        call = _Call.of(parameters)

        def remember(results: list[Tensor]) -> list[Tensor]:
            with torch.enable_grad():  # the waiting caller may be under no_grad
                return list(_FUNCTIONS[kind].apply(call, results, splits, *sources))

        return remember


operations: Collectives[Tensor] = Collectives(collectives.adapter, _Recorder())


class _Reduction(torch.autograd.Function):  # type: ignore[misc]  # torch is not read
    @staticmethod
    def forward(ctx: Any, call: _Call, results: list[Tensor], _: Any, *sources: Tensor) -> tuple[Tensor, ...]:
        ctx.call = call
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> _Gradients:
        check_linear(ctx.call.op, "allreduce", "tensor.detach()")
        return None, None, None, *_reduced(gradients, ctx.call.of_gradient(), ctx.call.op)


class _Gathering(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, call: _Call, results: list[Tensor], _: Any, *sources: Tensor) -> tuple[Tensor, ...]:
        ctx.call, ctx.rows = call, [len(source) for source in sources]
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> _Gradients:
        call = ctx.call.of_gradient()
        averages = _reduced(gradients, call, Average)
        # One row for each rank that has not joined: its position, and the number of rows of each of its tensors.
        rows = _gathered([torch.tensor([[call.place, *ctx.rows]])], ctx.call.of_gradient(".rows"))[0]
        starts = rows[rows[:, 0] < call.place, 1:].sum(0).tolist()
        mine = (each[start : start + count] for each, start, count in zip(averages, starts, ctx.rows, strict=True))
        return None, None, None, *mine


class _Spreading(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, call: _Call, results: list[Tensor], _: Any, source: Tensor) -> tuple[Tensor, ...]:
        ctx.call = call
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> _Gradients:
        (average,) = _reduced([gradient], ctx.call.of_gradient(), Average)
        if (
            rank() != ctx.call.root_rank
        ):  # zeros that depend on the average, so that all ranks take part in the second derivative
            average = average.masked_fill(torch.ones((), dtype=torch.bool, device=average.device), 0)
        return None, None, None, average


class _Exchange(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, call: _Call, results: list[Tensor], splits: Any, source: Tensor) -> tuple[Tensor, ...]:
        result, received = results
        ctx.call, ctx.received = call, received.tolist()
        ctx.sent = list(splits) or [len(source) // call.members] * call.members
        ctx.mark_non_differentiable(received)
        return result, received

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> _Gradients:
        call = ctx.call.of_gradient()
        returned, counts = operations.alltoall(gradient, ctx.received, call.name, call.process_set)
        return None, None, None, _with_lost_rows(returned, counts.tolist(), ctx.sent)


class _Scattering(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, call: _Call, results: list[Tensor], _: Any, *sources: Tensor) -> tuple[Tensor, ...]:
        ctx.call, ctx.rows = call, [len(source) for source in sources]
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> _Gradients:
        call = ctx.call
        check_linear(call.op, "reducescatter", "tensor.detach()")
        factor = call.prescale * call.postscale * (call.members if call.op is Sum else 1)
        gathered = _gathered(gradients, call.of_gradient())
        if [len(each) for each in gathered] != ctx.rows:  # some ranks have joined, and all others see it
            present = _gathered([torch.tensor([call.place])], call.of_gradient(".members"))[0].tolist()
            gathered = [
                _with_lost_rows(each, *_shares(rows, call.members, present))
                for each, rows in zip(gathered, ctx.rows, strict=True)
            ]
        return None, None, None, *(each * factor if factor != 1 else each for each in gathered)


_FUNCTIONS: dict[Kind, Any] = {
    Kind.ALLREDUCE: _Reduction,
    Kind.ALLGATHER: _Gathering,
    Kind.BROADCAST: _Spreading,
    Kind.ALLTOALL: _Exchange,
    Kind.REDUCESCATTER: _Scattering,
}


def _reduced(gradients: Sequence[Tensor], call: _Call, op: ReduceOp) -> list[Tensor]:
    return operations.grouped_allreduce(
        gradients, None, call.name, None, op, call.prescale, call.postscale, call.process_set
    )


def _gathered(gradients: Sequence[Tensor], call: _Call) -> list[Tensor]:
    return operations.grouped_allgather(gradients, call.name, call.process_set)


def _shares(rows: int, members: int, present: list[int]) -> tuple[list[int], list[int]]:
    """Return how many rows of a reducescatter's gradient came from each rank, and how many rows each rank has got."""
    each, more = divmod(rows, members)
    got = [each + (place < more) for place in range(members)]
    return [got[place] if place in present else 0 for place in range(members)], got


def _with_lost_rows(tensor: Tensor, came: list[int], wanted: list[int]) -> Tensor:
    """Return the tensor with zeros in place of the rows of ranks that gave none because they have joined."""
    if came == wanted:
        return tensor
    parts = zip(tensor.split(came), came, wanted, strict=True)
    return torch.cat([part if has == rows else part.new_zeros(rows, *part.shape[1:]) for part, has, rows in parts])
