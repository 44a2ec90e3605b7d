"""The collectives for tensors. All have gradients, and work eagerly, in `tf.function` and in TF1's graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, overload

import farandole
import tensorflow as tf
from farandole import ArgumentError, Average, ProcessSet, ReduceOp, Sum
from farandole.plugin import (
    BasicCollectives,
    CallGuard,
    Compressor,
    Kind,
    check_compressor,
    check_sequence,
    plain,
    reducing,
)
from farandole.plugin.parameter_check import note_join

from farandole_tensorflow._adapter import Tensor, TensorAdapter, as_tensor
from farandole_tensorflow._native import operations
from farandole_tensorflow._perform import perform, run, unconverted

collectives: BasicCollectives[Tensor] = BasicCollectives(TensorAdapter(), perform)
Compression = collectives.Compression
Reduced = TypeVar("Reduced", Tensor, tf.IndexedSlices)  # for type checkers a variable is a tensor


@unconverted
def allreduce(
    tensor: Reduced,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor[Tensor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet | None = None,
    ignore_name_scope: bool = False,
) -> Reduced:
    """Combine the ranks' tensors element by element into a new tensor of the same shape and dtype.

    Args:
        tensor: of any shape and supported dtype, alike on all ranks: a tensor, a variable, or `tf.IndexedSlices`, whose
            rows may differ between ranks; the result has those of all ranks, one after the other.
        average: deprecated; True means op=Average, False op=Sum.
        device_dense: not needed; accepted because Horovod does.
        device_sparse: the same.
        compression: what to send instead: `Compression.fp16` or `Compression.bf16`.
        op: Average (default), Sum, Min, Max, Product or Adasum, whose source `ReduceOp` names; `tf.IndexedSlices`,
            complex tensors and what has a gradient take Sum and Average only. An average of integers is the exact sum,
            divided and truncated toward zero; one of `tf.IndexedSlices` of integers is float64, or float32 for integers
            of 8 and 16 bits.
        prescale_factor: multiplies before the reduction.
        postscale_factor: multiplies after it.
        name: pairs this call with those of the other ranks. Without one eager calls are paired by their order; in a
            graph the first of one kind with the first, and so on.
        process_set: among which ranks; by default all.
        ignore_name_scope: not needed, name scopes are always ignored; accepted because Horovod does.

    Returns:
        A tensor, or `tf.IndexedSlices` for those.

    Raises:
        NotImplementedError: of `tf.IndexedSlices` another reduction than Sum and Average, or scaled integers.
        ValueError: other misuse that this rank sees alone. As everything below it is TensorFlow's own class too, see
            the guide, and that class alone where the graph that it is in runs.
        MismatchError: the ranks disagree about dtype, shape or arguments; the job goes on.
        RecoverableError: a rank is lost, or did not come in time.

    Example:
        >>> hvd.allreduce(tf.ones(2) * hvd.rank()).numpy().tolist()
        [0.5, 0.5]
    """
    how = average, name, op, prescale_factor, postscale_factor, process_set
    if isinstance(tensor, tf.IndexedSlices):
        return _allreduce_slices(tensor, reducing(*how), compression)
    return collectives.allreduce(tensor, average, name, compression, *how[2:])


@unconverted
def grouped_allreduce(
    tensors: Sequence[Reduced],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor[Tensor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | None = None,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Reduced]:
    """`allreduce` of several tensors as one operation; they may differ in shape and dtype. Returns a list of them.

    `tf.IndexedSlices` among them are combined as by `allreduce`.

    Example:
        >>> results = hvd.grouped_allreduce([tf.ones(1), tf.ones(2)], op=hvd.Sum)
        >>> [each.numpy().tolist() for each in results]
        [[2.0], [2.0, 2.0]]
    """
    how = average, name, op, prescale_factor, postscale_factor, process_set
    parameters = reducing(*how)
    with CallGuard(name, parameters[5]):
        check_sequence(tensors)
    dense = [each for each in tensors if not isinstance(each, tf.IndexedSlices)]
    reduced = iter(collectives.grouped_allreduce(dense, average, name, compression, *how[2:]) if dense else [])
    return [
        _allreduce_slices(each, _named(parameters, f"slices.{index}"), compression)
        if isinstance(each, tf.IndexedSlices)
        else next(reduced)
        for index, each in enumerate(tensors)
    ]


@unconverted
def allgather(
    tensor: Tensor, name: str | None = None, ignore_name_scope: bool = False, process_set: ProcessSet | None = None
) -> Tensor:
    """The ranks' tensors one after the other along the first dimension, the lowest rank's first, as a new tensor.

    The first dimension may differ between ranks and may be 0; the others and the dtype are alike.

    Example:
        >>> hvd.allgather([1.0 * hvd.rank()]).numpy().tolist()
        [0.0, 1.0]
    """
    return collectives.allgather(tensor, name, process_set)


@unconverted
def grouped_allgather(
    tensors: Sequence[Tensor],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet | None = None,
) -> list[Tensor]:
    """`allgather` of several tensors as one operation.

    Example:
        >>> results = hvd.grouped_allgather([tf.ones(1), tf.ones(1) * hvd.rank()])
        >>> [each.numpy().tolist() for each in results]
        [[1.0, 1.0], [0.0, 1.0]]
    """
    return collectives.grouped_allgather(tensors, name, process_set)


@unconverted
def broadcast(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet | None = None,
) -> Tensor:
    """Rank `root_rank`'s tensor, as a new tensor, on every rank; shape and dtype are alike on all ranks.

    Example:
        >>> hvd.broadcast(tf.ones(2) * hvd.rank(), root_rank=1).numpy().tolist()
        [1.0, 1.0]
    """
    return collectives.broadcast(tensor, root_rank, name, process_set)


@unconverted
def reducescatter(
    tensor: Tensor,
    device_dense: str = "",
    compression: Compressor[Tensor] = Compression.none,
    op: ReduceOp = Average,
    name: str | None = None,
    process_set: ProcessSet | None = None,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """This rank's rows of what `allreduce` would give, as a new tensor.

    Every rank gets as many rows; where the rows do not divide evenly, the first ranks get one more. `op` is any
    reduction but Adasum.

    Example:
        >>> hvd.reducescatter(tf.ones(2), op=hvd.Sum).numpy().tolist()  # of two rows each rank gets one
        [2.0]
    """
    return collectives.reducescatter(tensor, name, compression, op, process_set, prescale_factor, postscale_factor)


@unconverted
def grouped_reducescatter(
    tensors: Sequence[Tensor],
    device_dense: str = "",
    compression: Compressor[Tensor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[Tensor]:
    """`reducescatter` of several tensors as one operation.

    Example:
        >>> results = hvd.grouped_reducescatter([tf.ones(2), tf.ones(4)], op=hvd.Sum)
        >>> [each.numpy().tolist() for each in results]
        [[2.0], [2.0, 2.0]]
    """
    how = compression, op, process_set, prescale_factor, postscale_factor
    return collectives.grouped_reducescatter(tensors, name, *how)


@overload
def alltoall(
    tensor: Tensor,
    splits: None = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet | None = None,
) -> Tensor: ...
@overload
def alltoall(
    tensor: Tensor,
    splits: Sequence[int] | Tensor,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet | None = None,
) -> tuple[Tensor, Tensor]: ...
@unconverted
def alltoall(
    tensor: Tensor,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet | None = None,
) -> Any:
    """Give every rank its part of the tensor's rows; what came from all ranks, in their order, as a new tensor.

    Args:
        tensor: with at least one dimension; all but the first, and the dtype, are alike on all ranks.
        splits: how many rows go to each rank of the set, which add up to all rows: a list, or a tensor of integers with
            one dimension. Without it every rank gets as many, and the rows must be a multiple of the ranks.
        name: as in `allreduce`.
        ignore_name_scope: as in `allreduce`.
        process_set: as in `allreduce`.

    Returns:
        The tensor; where `splits` is given, (the tensor, how many rows came from each rank of the set).

    Example:
        >>> received = hvd.alltoall(tf.ones(2) * hvd.rank())  # of two rows each rank gets one
        >>> received.numpy().tolist()
        [0.0, 1.0]
    """
    name, *_, number = plain(name, process_set)
    with CallGuard(name, number):
        rows, dtype = ([], tf.int64) if splits is None else _row_counts(splits)
        sent, counts = as_tensor(tensor), tf.constant([], tf.int64) if splits is None else tf.cast(rows, tf.int64)
        if splits is not None and counts.shape == (0,):
            raise ArgumentError("there are 0 splits; give one for each rank of the set")
    result, received = run(
        operations.farandole_alltoall,
        Kind.ALLTOALL,
        name,
        lambda token: {"tensor": sent, "splits": counts, "token": token},
        {"process_set": number},
    )
    return result if splits is None else (result, tf.cast(received, dtype))


@unconverted
def barrier(process_set: ProcessSet | None = None, name: str | None = None) -> tf.Operation | None:
    """Block until every rank of the set, by default every rank, called it; in a graph, the operation that does.

    Example:
        >>> hvd.barrier()
    """
    if tf.executing_eagerly():
        farandole.barrier(process_set)
        return None
    name, *_, number = plain(name, process_set)
    return run(operations.farandole_barrier, Kind.BARRIER, name, _nothing, {"process_set": number})


@unconverted
def join(device: int = -1) -> int | Tensor:
    """Say that this rank has no more data, and block until every rank of the world said so, see `farandole.join`.

    Args:
        device: not needed; accepted because Horovod's for PyTorch does.

    Returns:
        The rank that was the last to join; in a graph, the operation's result that will be that.

    Example:
        >>> for _ in range(hvd.rank() + 1):  # rank 1 has one more batch
        ...     average = hvd.allreduce(tf.ones(2))
        >>> hvd.join()
        1
    """
    if tf.executing_eagerly():
        return farandole.join()
    last = run(operations.farandole_join, Kind.JOIN, "", _nothing, {"process_set": 0})
    return _noted(last) if tf.compat.v1.executing_eagerly_outside_functions() else last


def _noted(last: Tensor) -> Tensor:
    """A join's result, after which this process knows that it has ended; a session of TF1 need not."""

    def note(number: Any) -> Any:
        note_join()
        return number

    noted = tf.numpy_function(note, [last], last.dtype)
    noted.set_shape(last.shape)
    return noted


def _nothing(_: Tensor) -> dict[str, Any]:
    return {}


def _named(parameters: Any, suffix: str) -> Any:
    """The same under a name that is derived from its own."""
    name, *rest = parameters
    return (f"{name}.{suffix}" if name else "", *rest)


def _allreduce_slices(slices: Any, parameters: Any, compression: Compressor[Tensor] | None) -> Any:
    """Rows of all ranks, one after the other: an index that comes more than once means the sum."""
    name, reduce, _, prescale, postscale, number = parameters
    op = ReduceOp(reduce)
    with CallGuard(name, number):
        values = as_tensor(slices.values)
        is_fractional = values.dtype.is_floating or values.dtype.is_complex
        _check_slices(op, values, is_fractional or (prescale, postscale) == (1.0, 1.0))
        compression = compression or Compression.none
        check_compressor(compression)
        sent, context = compression.compress(values)
        both = [sent, as_tensor(slices.indices)]
    divisor = len(farandole.get_process_set_ids_and_ranks()[number]) if op is Average else 1
    gathered, indices = perform(Kind.ALLGATHER, both, (name, 0, 0, 1.0, 1.0, number))
    gathered = compression.decompress(gathered, context)
    if op is Average and not is_fractional:
        gathered = tf.cast(gathered, tf.float64 if gathered.dtype.size > 2 else tf.float32) / divisor
    elif (factor := prescale * postscale / divisor) != 1.0:
        gathered = gathered * tf.cast(factor, gathered.dtype)
    return tf.IndexedSlices(gathered, indices, slices.dense_shape)


def _check_slices(op: ReduceOp, values: Tensor, fits_factors: bool) -> None:
    if op not in (Sum, Average):
        raise NotImplementedError(
            f"tf.IndexedSlices can be reduced by Sum or Average, not by {op.name.capitalize()}: make them dense with "
            "tf.convert_to_tensor"
        )
    if not fits_factors:
        raise NotImplementedError(
            f"tf.IndexedSlices of {values.dtype.name} take no scale factors, only those of floats and complex numbers "
            "do: make them dense with tf.convert_to_tensor"
        )


def _row_counts(splits: Any) -> tuple[Any, Any]:
    """The splits, and with which dtype the counts of received rows are wanted."""
    try:
        rows = splits if tf.is_tensor(splits) else tf.convert_to_tensor([each.__index__() for each in splits], tf.int64)
    except (TypeError, AttributeError, ValueError):
        rows = None
    if rows is None or not rows.dtype.is_integer or rows.shape.rank not in (None, 1):
        raise ArgumentError(f"splits must be a list or a one-dimensional tensor of integers, not {splits!r}")
    return rows, rows.dtype
