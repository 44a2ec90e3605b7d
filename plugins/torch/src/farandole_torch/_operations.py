"""The collectives for tensors: `farandole.plugin.Collectives`, made differentiable where they return a new tensor.

`_autograd` says what the gradients are. Where nothing requires one, the core's own functions are called at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farandole import Average, Handle, ProcessSet, ReduceOp
from farandole.plugin import Compressor, check_compressor, check_sequence, reduction

from farandole_torch._adapter import Tensor
from farandole_torch._autograd import (
    Call,
    collectives,
    differentiates,
    equal_splits,
    exchange,
    gather,
    reduce,
    scatter,
    spread,
)

Compression = collectives.Compression


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
    if not differentiates(tensor):
        return collectives.allreduce(
            tensor, average, name, compression, op, prescale_factor, postscale_factor, process_set
        )
    check_compressor(compression)
    sent, context = compression.compress(tensor)
    call = Call(name, process_set, False, reduction(average, op), prescale_factor, postscale_factor)
    return compression.decompress(reduce([sent], call).wait()[0], context)


def allreduce_async(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | None = None,
) -> Handle[Tensor]:
    """`allreduce` that returns at once; the tensor must not be written until the handle is synchronized."""
    if not differentiates(tensor):
        return collectives.allreduce_async(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
    call = Call(name, process_set, False, reduction(average, op), prescale_factor, postscale_factor)
    return reduce([tensor], call).map(_only)


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
    if not differentiates(tensors):
        return collectives.grouped_allreduce(
            tensors, average, name, compression, op, prescale_factor, postscale_factor, process_set
        )
    check_compressor(compression)
    sent, contexts = zip(*map(compression.compress, tensors), strict=True)
    call = Call(name, process_set, True, reduction(average, op), prescale_factor, postscale_factor)
    return list(map(compression.decompress, reduce(sent, call).wait(), contexts))


def grouped_allreduce_async(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | None = None,
) -> Handle[list[Tensor]]:
    """`grouped_allreduce` that returns at once."""
    call = Call(name, process_set, True, reduction(average, op), prescale_factor, postscale_factor)
    return reduce(tensors, call)


def allgather(tensor: Tensor, name: str | None = None, process_set: ProcessSet | None = None) -> Tensor:
    """The ranks' tensors one after the other along the first dimension, the lowest rank's first, as a new tensor.

    Differentiable. The first dimension may differ between ranks and may be 0; the others and the dtype are alike.
    Raises like `allreduce`.
    """
    return gather([tensor], Call(name, process_set)).wait()[0]


def allgather_async(tensor: Tensor, name: str | None = None, process_set: ProcessSet | None = None) -> Handle[Tensor]:
    """`allgather` that returns at once; the tensor must not be written until the handle is synchronized."""
    return gather([tensor], Call(name, process_set)).map(_only)


def grouped_allgather(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet | None = None
) -> list[Tensor]:
    """`allgather` of several tensors as one operation. Differentiable."""
    return gather(tensors, Call(name, process_set, grouped=True)).wait()


def grouped_allgather_async(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet | None = None
) -> Handle[list[Tensor]]:
    """`grouped_allgather` that returns at once."""
    return gather(tensors, Call(name, process_set, grouped=True))


def broadcast(tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet | None = None) -> Tensor:
    """Rank `root_rank`'s tensor, as a new tensor, on every rank; shape and dtype are alike. Differentiable.

    Raises like `allreduce`.
    """
    if not differentiates(tensor):
        return collectives.broadcast(tensor, root_rank, name, process_set)
    return spread(tensor, Call(name, process_set, root_rank=root_rank)).wait()


def broadcast_async(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet | None = None
) -> Handle[Tensor]:
    """`broadcast` that returns at once; the root's tensor must not be written until the handle is synchronized."""
    return spread(tensor, Call(name, process_set, root_rank=root_rank))


def alltoall(
    tensor: Tensor, splits: object = None, name: str | None = None, process_set: ProcessSet | None = None
) -> Any:
    """Give every rank its part of the tensor's rows; what came from all ranks, in their order, as a new tensor.

    Differentiable. Raises like `allreduce`.

    Args:
        tensor: with at least one dimension; all but the first, and the dtype, are alike on all ranks.
        splits: how many rows go to each rank of the set, which add up to all rows: a list, or a tensor of integers
            with one dimension. Without it every rank gets as many, and the rows must be a multiple of the ranks.
        name: as in `allreduce`.
        process_set: as in `allreduce`.

    Returns:
        The tensor; where `splits` is given, (the tensor, how many rows came from each rank of the set), the latter
        with the dtype of `splits`, or int64 where that is a list.
    """
    return alltoall_async(tensor, splits, name, process_set).wait()


def alltoall_async(
    tensor: Tensor, splits: object = None, name: str | None = None, process_set: ProcessSet | None = None
) -> Handle[Any]:
    """`alltoall` that returns at once; the tensor must not be written until the handle is synchronized."""
    if not differentiates(tensor):
        return collectives.alltoall_async(tensor, splits, name, process_set)
    call = Call(name, process_set)
    if splits is not None:
        return exchange(tensor, splits, call)
    equal = equal_splits(tensor, call)
    if equal is None:
        return collectives.alltoall_async(tensor, None, name, process_set)
    return exchange(tensor, equal, call).map(_only)


def reducescatter(
    tensor: Tensor,
    name: str | None = None,
    compression: Compressor[Tensor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """This rank's rows of what `allreduce` would give, as a new tensor. Differentiable for Average and Sum.

    Every rank gets as many rows; where the rows do not divide evenly, the first ranks get one more. `op` is any
    reduction but Adasum. Raises like `allreduce`.
    """
    check_compressor(compression)
    sent, context = compression.compress(tensor)
    call = Call(name, process_set, False, reduction(None, op), prescale_factor, postscale_factor)
    return compression.decompress(scatter([sent], call).wait()[0], context)


def reducescatter_async(
    tensor: Tensor,
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[Tensor]:
    """`reducescatter` that returns at once; the tensor must not be written until the handle is synchronized."""
    call = Call(name, process_set, False, reduction(None, op), prescale_factor, postscale_factor)
    return scatter([tensor], call).map(_only)


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: str | None = None,
    compression: Compressor[Tensor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """`reducescatter` of several tensors as one operation. Differentiable for Average and Sum."""
    check_sequence(tensors)
    check_compressor(compression)
    sent, contexts = zip(*map(compression.compress, tensors), strict=True)
    call = Call(name, process_set, True, reduction(None, op), prescale_factor, postscale_factor)
    return list(map(compression.decompress, scatter(sent, call).wait(), contexts))


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[list[Tensor]]:
    """`grouped_reducescatter` that returns at once."""
    call = Call(name, process_set, True, reduction(None, op), prescale_factor, postscale_factor)
    return scatter(tensors, call)


def _only(results: Any) -> Any:
    return results[0]
