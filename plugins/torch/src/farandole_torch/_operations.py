"""The collectives for tensors: `farandole.plugin.Collectives`, made differentiable where they return a new tensor.

The gradient of an allreduce is the allreduce of the gradients with the same reduction and factors. Those of allgather
and broadcast are averages over the ranks of the set, as in Horovod: of the gathered gradients each rank keeps its own
rows; of the broadcast tensor's gradients the root keeps all and the others none. The operations that have no gradient
yet refuse tensors that need one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from farandole import Average, ProcessSet, ReduceOp, Sum, rank
from farandole.plugin import Collectives, Compressor, check_compressor, reduction

from farandole_torch._adapter import Tensor, TensorAdapter

collectives: Collectives[Tensor] = Collectives(TensorAdapter())
Compression = collectives.Compression
_DIFFERENTIABLE = ("allgather", "allreduce", "broadcast", "grouped_allgather", "grouped_allreduce")
_GROUPS = (list, tuple)
_Operation = TypeVar("_Operation", bound=Callable[..., Any])


def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Compressor[Tensor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | None = None,
) -> Tensor:
    """Combine the ranks' tensors element by element into a new tensor of the same shape, dtype and device.

    Differentiable. Every rank must call it, with the same `name` where one is given.

    Args:
        tensor: of any shape and supported dtype; alike on all ranks.
        average: deprecated; True means op=Average, False op=Sum.
        name: matches the ranks' calls whatever their order; unnamed calls are matched by their order.
        compression: what to send instead: `Compression.fp16` or `Compression.bf16`.
        op: Average (default), Sum, Min, Max, Product or Adasum; the first two have a gradient. An average of integers
            is truncated.
        prescale_factor: multiplies before the reduction.
        postscale_factor: multiplies after it.
        process_set: among which ranks; by default all.

    Raises:
        ValueError: misuse that this rank sees alone.
        MismatchError: the ranks disagree about dtype, shape or arguments; the job goes on.
        RecoverableError: a rank is lost, or did not come in time.
    """
    if not _differentiates(tensor):
        return collectives.allreduce(
            tensor, average, name, compression, op, prescale_factor, postscale_factor, process_set
        )
    check_compressor(compression)
    sent, context = compression.compress(tensor)
    (reduced,) = _Allreduce.apply(
        False, name, reduction(average, op), prescale_factor, postscale_factor, process_set, sent
    )
    return compression.decompress(reduced, context)


def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Compressor[Tensor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | None = None,
) -> list[Tensor]:
    """`allreduce` of several tensors as one operation: it starts when every rank has called it. Differentiable."""
    if not _differentiates(*tensors):
        return collectives.grouped_allreduce(
            tensors, average, name, compression, op, prescale_factor, postscale_factor, process_set
        )
    check_compressor(compression)
    pairs = [compression.compress(tensor) for tensor in tensors]
    reduced = _Allreduce.apply(
        True,
        name,
        reduction(average, op),
        prescale_factor,
        postscale_factor,
        process_set,
        *(sent for sent, _ in pairs),
    )
    return [compression.decompress(result, context) for result, (_, context) in zip(reduced, pairs, strict=True)]


def allgather(tensor: Tensor, name: str | None = None, process_set: ProcessSet | None = None) -> Tensor:
    """The ranks' tensors one after the other along the first dimension, the lowest rank's first, as a new tensor.

    Differentiable. The first dimension may differ between ranks and may be 0; the others and the dtype are alike.
    Raises like `allreduce`.
    """
    if not _differentiates(tensor):
        return collectives.allgather(tensor, name, process_set)
    return _Allgather.apply(False, name, process_set, tensor)[0]


def grouped_allgather(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet | None = None
) -> list[Tensor]:
    """`allgather` of several tensors as one operation. Differentiable."""
    if not _differentiates(*tensors):
        return collectives.grouped_allgather(tensors, name, process_set)
    return list(_Allgather.apply(True, name, process_set, *tensors))


def broadcast(tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet | None = None) -> Tensor:
    """Rank `root_rank`'s tensor, as a new tensor, on every rank; shape and dtype are alike. Differentiable.

    Raises like `allreduce`.
    """
    if not _differentiates(tensor):
        return collectives.broadcast(tensor, root_rank, name, process_set)
    return _Broadcast.apply(tensor, root_rank, name, process_set)


def _differentiates(*tensors: Any) -> bool:
    return torch.is_grad_enabled() and any(getattr(tensor, "requires_grad", False) for tensor in tensors)


def without_gradient(operation: _Operation) -> _Operation:
    """The operation, which raises ValueError where its result would silently lack the gradient that its input needs."""

    @functools.wraps(operation)
    def checked(*arguments: Any, **named: Any) -> Any:
        given: Any = arguments[0] if arguments else named.get("tensor", named.get("tensors"))
        if getattr(given, "requires_grad", True) and _differentiates(*(given if type(given) in _GROUPS else [given])):
            raise _no_gradient(operation.__name__)
        return operation(*arguments, **named)

    return cast(_Operation, checked)


def _no_gradient(name: str) -> ValueError:
    direct = name.removesuffix("_async")
    other = f"; {direct} has one" if direct in _DIFFERENTIABLE else ""
    return ValueError(
        f"{name} has no gradient yet, and its tensor requires one: give tensor.detach(), or call it under "
        f"torch.no_grad(){other}"
    )


def _of_gradient(name: str | None) -> str | None:
    return f"{name}.gradient" if name else None


class _Allreduce(torch.autograd.Function):  # type: ignore[misc]  # torch is not read
    @staticmethod
    def forward(
        ctx: Any,
        grouped: bool,
        name: str | None,
        op: ReduceOp,
        prescale: float,
        postscale: float,
        process_set: ProcessSet | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.arguments = grouped, _of_gradient(name), op, prescale, postscale, process_set
        start = collectives.grouped_allreduce if grouped else _only(collectives.allreduce)
        return tuple(start(tensors, None, name, None, op, prescale, postscale, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        op = ctx.arguments[2]
        if op not in (Sum, Average):
            what = f"allreduce with op={op.name.capitalize()}"
            raise ValueError(f"{what} has no gradient: give it tensor.detach(), or use Sum or Average")
        return (*[None] * 6, *_Allreduce.apply(*ctx.arguments, *gradients))


class _Allgather(torch.autograd.Function):  # type: ignore[misc]  # torch is not read
    @staticmethod
    def forward(
        ctx: Any, grouped: bool, name: str | None, process_set: ProcessSet | None, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.grouped, ctx.name, ctx.process_set = grouped, _of_gradient(name), process_set
        ctx.rows = [len(tensor) for tensor in tensors]
        start = collectives.grouped_allgather if grouped else _only(collectives.allgather)
        return tuple(start(tensors, name, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        arguments = ctx.grouped, ctx.name, Average, 1.0, 1.0, ctx.process_set
        averages = _Allreduce.apply(*arguments, *gradients)
        rows_name = f"{ctx.name}.rows" if ctx.name else None
        rows = collectives.allgather(torch.tensor([ctx.rows]), rows_name, ctx.process_set)  # [rank, tensor]
        place = rank() if ctx.process_set is None else ctx.process_set.rank()
        starts = rows[:place].sum(0).tolist()
        mine = (
            average[start : start + count] for average, start, count in zip(averages, starts, ctx.rows, strict=True)
        )
        return (None, None, None, *mine)


class _Broadcast(torch.autograd.Function):  # type: ignore[misc]  # torch is not read
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet | None) -> Tensor:
        ctx.root_rank, ctx.name, ctx.process_set = root_rank, _of_gradient(name), process_set
        return collectives.broadcast(tensor, root_rank, name, process_set)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (average,) = _Allreduce.apply(False, ctx.name, Average, 1.0, 1.0, ctx.process_set, gradient)
        return (average if rank() == ctx.root_rank else torch.zeros_like(average)), None, None, None


def _only(operation: Any) -> Any:
    """The operation of one tensor in the form of a grouped one."""
    return lambda tensors, *arguments: [operation(tensors[0], *arguments)]
