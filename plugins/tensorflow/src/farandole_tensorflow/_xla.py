"""Operations in what XLA compiles, `tf.function(jit_compile=True)`.

XLA has no kernels for our operations, and says so when a graph runs, in words of its own; here it is said before. After
`use_xla` an allreduce becomes a call out of the compiled code, see csrc/from_xla.h.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf
from farandole import ReduceOp
from farandole.plugin import Kind, Parameters, check_linear
from farandole.plugin.native import call_site

from farandole_tensorflow._adapter import Tensor
from farandole_tensorflow._native import call_from_xla
from farandole_tensorflow._private import call_out_of_xla, is_compiled

_TARGET = "farandole"  # as in csrc/from_xla.cc
_used = False
_last: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # the last call of a graph; an operation would keep its graph


def use_xla() -> None:
    """Allow allreduces in functions with jit_compile=True, on the CPU.

    For the CPU only, and not for all versions of TensorFlow to come: it relies on functions that TensorFlow exports but
    does not promise. Each call holds the compiled code until the other ranks have come, so gradients are reduced in one
    operation when all of them are there. Optimizers, tapes and SyncBatchNormalization work with it, other operations
    than allreduce and grouped_allreduce do not. A failed call is a `tf.errors.InternalError` with the same text.

    Raises:
        RuntimeError: this TensorFlow has no such functions.

    Example:
        >>> hvd.use_xla()
        >>> double = tf.function(lambda tensor: hvd.allreduce(tensor, op=hvd.Sum), jit_compile=True)
        >>> double(tf.ones(2)).numpy().tolist()
        [2.0, 2.0]
    """
    global _used
    if problem := call_from_xla():
        raise RuntimeError(f"farandole-tensorflow cannot be called from XLA: {problem}; use jit_compile=False")
    _used = True


def is_used() -> bool:
    """Return whether `use_xla` was called."""
    return _used


def check_not_compiled(graph: Any, kind: str) -> None:
    """Raise tf.errors.InvalidArgumentError where the graph that is being made will be compiled by XLA."""
    if is_compiled(graph):
        raise tf.errors.InvalidArgumentError(
            None,
            None,
            f"{kind} cannot be compiled by XLA: use model.compile(..., jit_compile=False) in Keras, or give fit the "
            "BroadcastGlobalVariablesCallback, which does; elsewhere tf.function(..., jit_compile=False). On the CPU "
            "hvd.use_xla() makes it possible for allreduce",
        )


def is_call(kind: Kind) -> bool:
    """Return whether an operation in the graph that is being made shall be a call out of compiled code."""
    return _used and kind is Kind.ALLREDUCE and is_compiled(tf.compat.v1.get_default_graph())


def allreduce(tensors: Sequence[Tensor], parameters: Parameters) -> list[Tensor]:
    """The results, with gradients, of an operation for which `is_call` holds.

    Raises:
        ValueError: a shape that is not known when the graph is made.
    """
    name, reduce, *others = parameters
    for each in tensors:
        if not each.shape.is_fully_defined():
            raise ValueError(
                f"allreduce in a function with jit_compile=True needs to know the shape, not only {each.shape}: give "
                "the function an input_signature or data without unknown dimensions"
            )

    @tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow is not read
    def reduced(*given: Tensor) -> Any:
        def gradient(*gradients: Tensor) -> list[Tensor]:
            check_differentiable(Kind.ALLREDUCE, ReduceOp(reduce))
            return allreduce(gradients, (f"{name}.gradient" if name else "", reduce, *others))  # type: ignore[arg-type]

        return _call(given, parameters), gradient

    return list(reduced(*tensors))


def check_differentiable(kind: Kind, op: ReduceOp) -> None:
    """Raise ValueError for a reduction that has no gradient."""
    check_linear(op, kind.name.lower(), "tf.stop_gradient(tensor)")


def _call(tensors: Sequence[Tensor], parameters: Parameters) -> list[Tensor]:
    name, reduce, _, prescale, postscale, process_set = parameters
    factors = struct.unpack("qq", struct.pack("dd", prescale, postscale))
    numbers = [int(Kind.ALLREDUCE), int(reduce), 0, process_set, *factors]
    for each in tensors:
        numbers += [each.dtype.as_datatype_enum, each.shape.rank, *each.shape]
    graph = tf.compat.v1.get_default_graph()
    with graph.name_scope(None):
        node = graph.unique_name(f"xla.allreduce.{name}" if name else "xla.allreduce")
    # XLA begins calls in any order, and each waits: by a number from one to the next they have the same on all ranks.
    before = graph.get_operation_by_name(_last[graph]).outputs[-1] if graph in _last else tf.constant(0)
    operands = [*tensors, before]
    results: list[Tensor]
    *results, after = call_out_of_xla(
        operands=operands,
        call_target_name=_TARGET,
        backend_config="\n".join((" ".join(map(str, numbers)), node, call_site())),
        has_side_effect=True,
        result_dtypes=[each.dtype for each in operands],
        result_shapes=[each.shape for each in operands],
    )
    _last[graph] = after.op.name
    return results
