"""Gradients of the operations, as in Horovod.

That of an allreduce is the allreduce of the gradients, with the same reduction and factors. Those of allgather and
broadcast are averages over the ranks of the set: of the gathered gradients each rank keeps its own rows; of the
broadcast tensor's gradients the root keeps all and the others none. That of a reducescatter is the allgather of the
gradients, times the size of the set for a sum. Rows that alltoall has moved go back.

Ranks and sizes are looked up when the graph runs, since it may outlive an epoch of an elastic job.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import tensorflow as tf
from farandole import Average, ReduceOp, Sum
from farandole.plugin import Kind, Parameters

from farandole_tensorflow._adapter import Tensor
from farandole_tensorflow._native import operations
from farandole_tensorflow._perform import current_token, perform, run
from farandole_tensorflow._rank_ops import place_op, rank_op, size_op
from farandole_tensorflow._xla import check_differentiable

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _gradient_of(operation: str) -> Callable[[_Function], _Function]:
    return cast(Callable[[_Function], _Function], tf.RegisterGradient(operation))


@_gradient_of("FarandoleAllreduce")
def _of_allreduce(op: Any, *gradients: Tensor) -> list[Tensor]:
    reduce = _reduction(op)
    check_differentiable(Kind.ALLREDUCE, reduce)
    factors = _factor(op, "prescale_bits"), _factor(op, "postscale_bits")
    parameters = (_name(op), int(reduce), 0, *factors, op.get_attr("process_set"))
    return [*perform(Kind.ALLREDUCE, _dense(op, gradients), parameters), None]


@_gradient_of("FarandoleAllgather")
def _of_allgather(op: Any, *gradients: Tensor) -> list[Tensor]:
    averages = _averages(op, gradients)
    number = op.get_attr("process_set")
    mine = tf.stack([tf.shape(tensor, tf.int64)[0] for tensor in op.inputs[:-1]])
    parameters = (f"{_name(op)}.rows" if _name(op) else "", 0, 0, 1.0, 1.0, number)
    (rows,) = perform(Kind.ALLGATHER, [mine[tf.newaxis]], parameters)  # [rank, tensor]
    starts = tf.reduce_sum(rows[: place_op(number)], axis=0)
    # Ends at a computed place: of a rank without rows TensorFlow would know the result, and drop its average.
    ends = starts + mine + tf.cast(current_token(), tf.int64)
    return [*(each[starts[i] : ends[i]] for i, each in enumerate(averages)), None]


@_gradient_of("FarandoleBroadcast")
def _of_broadcast(op: Any, *gradients: Tensor) -> list[Tensor]:
    averages = _averages(op, gradients)
    # Chosen when the graph runs: an average that a rank does not need is dropped there, and the others would wait.
    is_root = tf.equal(rank_op(), op.get_attr("root_rank"))
    return [*(tf.where(is_root, each, tf.zeros_like(each)) for each in averages), None]


@_gradient_of("FarandoleReducescatter")
def _of_reducescatter(op: Any, *gradients: Tensor) -> list[Tensor]:
    reduce = _reduction(op)
    check_differentiable(Kind.REDUCESCATTER, reduce)
    factor = _factor(op, "prescale_bits") * _factor(op, "postscale_bits")
    parameters = (_name(op), 0, 0, 1.0, 1.0, op.get_attr("process_set"))
    gathered = perform(Kind.ALLGATHER, _dense(op, gradients), parameters)
    if reduce is Sum:
        factor *= tf.cast(size_op(op.get_attr("process_set")), tf.float64)
    return [*(each * tf.cast(factor, each.dtype) for each in gathered), None]


@_gradient_of("FarandoleAlltoall")
def _of_alltoall(op: Any, gradient: Tensor, _: Tensor) -> list[Tensor]:
    (sent,) = _dense(op, [gradient])
    result, _ = run(
        operations.farandole_alltoall,
        Kind.ALLTOALL,
        _name(op),
        lambda token: {"tensor": sent, "splits": op.outputs[1], "token": token},
        {"process_set": op.get_attr("process_set")},
    )
    return [result, None, None]


for _stateful in ("FarandoleBarrier", "FarandoleJoin"):
    tf.no_gradient(_stateful)


def _averages(op: Any, gradients: Sequence[Tensor]) -> list[Tensor]:
    parameters: Parameters = (_name(op), int(Average), 0, 1.0, 1.0, op.get_attr("process_set"))
    return perform(Kind.ALLREDUCE, _dense(op, gradients), parameters)


def _dense(op: Any, gradients: Sequence[Any]) -> list[Tensor]:
    """The gradients of all outputs; zeros for those that nothing depends on, which the other ranks may need."""
    return [
        tf.zeros_like(output) if each is None else tf.convert_to_tensor(each)
        for output, each in zip(op.outputs, gradients, strict=False)
    ]


def _reduction(op: Any) -> ReduceOp:
    return ReduceOp(op.get_attr("reduce"))


def _factor(op: Any, attribute: str) -> float:
    (factor,) = struct.unpack("d", struct.pack("q", op.get_attr(attribute)))
    return float(factor)


def _name(op: Any) -> str:
    """The name of the collective in the gradient; "" if the operation has none."""
    name = op.get_attr("tensor_name").decode()
    return f"{name}.gradient" if name else ""
