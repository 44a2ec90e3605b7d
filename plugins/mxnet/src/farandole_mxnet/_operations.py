"""The collectives for MXNet's arrays, as operations of its engine.

Reductions and broadcasts return at once: MXNet performs them when their arrays are computed, and whoever reads the
result waits. allgather and alltoall return when they are complete, since the shape of their result is not known before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, overload

import mxnet as mx
from farandole import ArgumentError, Average, ProcessSet, ReduceOp, get_process_set_ids_and_ranks, is_initialized, rank
from farandole.plugin import (
    BasicCollectives,
    CallGuard,
    Collectives,
    Compressor,
    Kind,
    Parameters,
    check_sequence,
    reducing,
    rooted,
)
from farandole.plugin.native import before_unnamed

from farandole_mxnet import _native
from farandole_mxnet._adapter import NDArray, NDArrayAdapter
from farandole_mxnet._life import leave_at_exit

collectives: Collectives[NDArray] = Collectives(NDArrayAdapter())
Compression = collectives.Compression
before_unnamed(_native.await_begun)
_HAS_LAYOUTS = mx.runtime.Features().is_enabled("MKLDNN")  # MXNet's name of oneDNN


def allreduce(
    tensor: NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | None = None,
    op: ReduceOp | None = None,
    compression: Compressor[NDArray] | None = None,
) -> NDArray:
    """Combine the ranks' arrays element by element into a new array of the same shape and dtype.

    Args:
        tensor: of any shape and supported dtype; alike on all ranks.
        average: deprecated; True means op=Average, False op=Sum.
        name: pairs this call with those of the other ranks; calls without one are paired by their order.
        priority: of the operation in MXNet's engine; the highest that is ready comes first.
        prescale_factor: multiplies before the reduction.
        postscale_factor: multiplies after it.
        process_set: among which ranks, by default all.
        op: Average (default), Sum, Min, Max, Product or Adasum, whose source `ReduceOp` names. An average of integers
            is the exact sum, divided and truncated toward zero.
        compression: what to send instead, such as `Compression.fp16`.

    Example:
        >>> hvd.allreduce(mx.nd.ones(2) * hvd.rank()).asnumpy().tolist()
        [0.5, 0.5]
    """
    how = op, prescale_factor, postscale_factor, process_set
    return _deferred(priority).allreduce(tensor, average, name, compression, *how)


def allreduce_(
    tensor: NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | None = None,
    op: ReduceOp | None = None,
) -> NDArray:
    """`allreduce` in place; returns the array.

    Example:
        >>> array = mx.nd.ones(2)
        >>> hvd.allreduce_(array, op=hvd.Sum) is array
        True
        >>> array.asnumpy().tolist()
        [2.0, 2.0]
    """
    parameters = reducing(average, name, op, prescale_factor, postscale_factor, process_set)
    return begin(Kind.ALLREDUCE, [tensor], [tensor], parameters, priority)[0]


def grouped_allreduce(
    tensors: Sequence[NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | None = None,
    op: ReduceOp | None = None,
    compression: Compressor[NDArray] | None = None,
) -> list[NDArray]:
    """`allreduce` of several arrays as one operation; they may differ in shape and dtype. Returns a list of them.

    Example:
        >>> results = hvd.grouped_allreduce([mx.nd.ones(1), mx.nd.ones(2)], op=hvd.Sum)
        >>> [each.asnumpy().tolist() for each in results]
        [[2.0], [2.0, 2.0]]
    """
    how = op, prescale_factor, postscale_factor, process_set
    return _deferred(priority).grouped_allreduce(tensors, average, name, compression, *how)


def grouped_allreduce_(
    tensors: Sequence[NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | None = None,
    op: ReduceOp | None = None,
) -> list[NDArray]:
    """`grouped_allreduce` in place; returns the arrays.

    Example:
        >>> arrays = [mx.nd.ones(1), mx.nd.ones(2)]
        >>> _ = hvd.grouped_allreduce_(arrays, op=hvd.Sum)
        >>> [each.asnumpy().tolist() for each in arrays]
        [[2.0], [2.0, 2.0]]
    """
    parameters = reducing(average, name, op, prescale_factor, postscale_factor, process_set)
    results = begin(Kind.ALLREDUCE, tensors, None, parameters, priority)
    for tensor, result in zip(tensors, results, strict=True):
        result.copyto(tensor)  # MXNet waits forever for an operation that writes one array twice, or two parts of one
    return list(tensors)


def broadcast(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet | None = None,
) -> NDArray:
    """Rank `root_rank`'s array, as a new array, on every rank; shape and dtype are alike on all ranks.

    Example:
        >>> hvd.broadcast(mx.nd.ones(2) * hvd.rank(), root_rank=1).asnumpy().tolist()
        [1.0, 1.0]
    """
    return _deferred(priority).broadcast(tensor, root_rank, name, process_set)


def broadcast_(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet | None = None,
) -> NDArray:
    """`broadcast` into `tensor`; returns it.

    Example:
        >>> array = mx.nd.ones(2) * hvd.rank()
        >>> hvd.broadcast_(array, root_rank=1) is array
        True
        >>> array.asnumpy().tolist()
        [1.0, 1.0]
    """
    return begin(Kind.BROADCAST, [tensor], [tensor], rooted(root_rank, name, process_set), priority)[0]


def reducescatter(
    tensor: NDArray,
    op: ReduceOp = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Compressor[NDArray] | None = None,
) -> NDArray:
    """This rank's rows of what `allreduce` would give, as a new array.

    Every rank gets as many rows; where the rows do not divide evenly, the first ranks get one more. `op` is any
    reduction but Adasum.

    Example:
        >>> hvd.reducescatter(mx.nd.array([1.0, 1.0]), op=hvd.Sum).asnumpy().tolist()  # of two rows each rank gets one
        [2.0]
    """
    how = compression, op, process_set, prescale_factor, postscale_factor
    return _deferred(priority).reducescatter(tensor, name, *how)


def grouped_reducescatter(
    tensors: Sequence[NDArray],
    op: ReduceOp = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: Compressor[NDArray] | None = None,
) -> list[NDArray]:
    """`reducescatter` of several arrays as one operation.

    Example:
        >>> results = hvd.grouped_reducescatter([mx.nd.ones(2), mx.nd.ones(4)], op=hvd.Sum)
        >>> [each.asnumpy().tolist() for each in results]
        [[2.0], [2.0, 2.0]]
    """
    how = compression, op, process_set, prescale_factor, postscale_factor
    return _deferred(priority).grouped_reducescatter(tensors, name, *how)


def allgather(
    tensor: NDArray, name: str | None = None, priority: int = 0, process_set: ProcessSet | None = None
) -> NDArray:
    """The ranks' arrays one after the other along the first dimension, the lowest rank's first, as a new array.

    The first dimension may differ between ranks; the others and the dtype are alike. Returns when it is complete;
    `priority` is accepted because Horovod does.

    Example:
        >>> hvd.allgather(mx.nd.ones(1) * hvd.rank()).asnumpy().tolist()
        [0.0, 1.0]
    """
    return collectives.allgather(tensor, name, process_set)


def grouped_allgather(
    tensors: Sequence[NDArray], name: str | None = None, priority: int = 0, process_set: ProcessSet | None = None
) -> list[NDArray]:
    """`allgather` of several arrays as one operation.

    Example:
        >>> results = hvd.grouped_allgather([mx.nd.ones(1), mx.nd.ones(1) * hvd.rank()])
        >>> [each.asnumpy().tolist() for each in results]
        [[1.0, 1.0], [0.0, 1.0]]
    """
    return collectives.grouped_allgather(tensors, name, process_set)


@overload
def alltoall(
    tensor: NDArray,
    splits: None = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet | None = None,
) -> NDArray: ...
@overload
def alltoall(
    tensor: NDArray,
    splits: Sequence[int] | NDArray,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet | None = None,
) -> tuple[NDArray, NDArray]: ...
def alltoall(
    tensor: NDArray,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet | None = None,
) -> NDArray | tuple[NDArray, NDArray]:
    """Give every rank its part of the array's rows; what came from all ranks, in their order, as a new array.

    Args:
        tensor: with at least one dimension; all but the first, and the dtype, are alike on all ranks.
        splits: how many rows go to each rank of the set, which add up to all rows: a list, or an array of integers with
            one dimension. Without it every rank gets as many, and the rows must be a multiple of the ranks.
        name: as in `allreduce`.
        priority: accepted because Horovod does; the call returns when it is complete.
        process_set: as in `allreduce`.

    Returns:
        The array; where `splits` is given, (the array, how many rows came from each rank of the set).

    Example:
        >>> received = hvd.alltoall(mx.nd.ones(2) * hvd.rank())  # of two rows each rank gets one
        >>> received.asnumpy().tolist()
        [0.0, 1.0]
    """
    if not isinstance(splits, mx.nd.NDArray):
        return collectives.alltoall(tensor, splits, name, process_set)
    result, counts = collectives.alltoall(tensor, splits.asnumpy().tolist(), name, process_set)
    return result, counts.astype(splits.dtype)


def begin(
    kind: Kind,
    sources: Sequence[NDArray],
    targets: Sequence[NDArray] | None,
    parameters: Parameters,
    priority: int,
    is_gradient: bool = False,
) -> list[NDArray]:
    """Push one operation, through host memory where the core cannot have arrays as they lie, and return its targets.

    `targets`: None stands for new arrays like the sources.
    """
    with CallGuard(parameters[0], parameters[5]):
        check_sequence(sources)
        targets = list(map(collectives.adapter.empty_like, sources)) if targets is None else targets
        leave_at_exit()
        sources = [
            source if source is target else _as_usual(source) for source, target in zip(sources, targets, strict=True)
        ]
        is_begun = _native.push(kind, sources, targets, parameters, priority, is_gradient)
    if not is_begun:
        with CallGuard(parameters[0], parameters[5]):
            on_host = [source.copyto(mx.cpu()) for source in sources]
            results = [_on_host(target) for target in targets] if kind is Kind.REDUCESCATTER else on_host
            _native.push(kind, on_host, results, parameters, priority, is_gradient)
        for target, result in zip(targets, results, strict=True):
            result.copyto(target)
    return list(targets)


def _as_usual(source: NDArray) -> NDArray:
    """The array, or a copy where it may be in a layout of oneDNN's.

    The operation itself could not convert it: MXNet does that in one of its own, which waits for what the program
    writes to the array next, and that waits for our operation.
    """
    may_differ = _HAS_LAYOUTS and len(source.shape) > 1 and source.context.device_type != "gpu"
    return source.copy() if may_differ else source


def _on_host(target: NDArray) -> NDArray:
    dtype, shape = collectives.adapter.describe(target)
    return collectives.adapter.empty(target, shape, dtype, host=True)


@cache
def _deferred(priority: int) -> BasicCollectives[NDArray]:
    """The operations that MXNet's engine begins, at this priority."""
    return BasicCollectives(collectives.adapter, partial(_perform, priority))


def _perform(priority: int, kind: Kind, tensors: Sequence[NDArray], parameters: Parameters) -> list[NDArray]:
    targets = None
    if kind is Kind.REDUCESCATTER:
        with CallGuard(parameters[0], parameters[5]):
            targets = [_rows_of(each, parameters[5]) for each in tensors]
    return begin(kind, tensors, targets, parameters, priority)


def _rows_of(tensor: NDArray, process_set: int) -> NDArray:
    """An array for this rank's rows of the result."""
    dtype, shape = collectives.adapter.describe(tensor)
    if not shape:
        raise ArgumentError("reducescatter needs an array with at least one dimension, not a scalar")
    ranks = get_process_set_ids_and_ranks()[process_set] if is_initialized() else [0]
    rows, extra = divmod(shape[0], len(ranks))
    rows += is_initialized() and ranks.index(rank()) < extra
    return collectives.adapter.empty(tensor, (rows, *shape[1:]), dtype)
