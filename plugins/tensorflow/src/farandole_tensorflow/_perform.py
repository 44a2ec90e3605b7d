"""Runs a collective as an operation of TensorFlow: eagerly, or as a node of the graph that is being built.

Eager calls without a name are paired by their order, as everywhere. The nodes of a graph run in any order, so each has
a name: its own in the graph, outside of all name scopes, since those count what only one rank may have made.
"""

from __future__ import annotations

import re
import struct
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import tensorflow as tf
from farandole.plugin import CallGuard, Kind, Parameters, register_plugin
from farandole.plugin.native import await_earlier, call_site, no_calls_while

from farandole_tensorflow import _xla
from farandole_tensorflow._adapter import Tensor, as_tensor
from farandole_tensorflow._errors import as_ours
from farandole_tensorflow._native import is_asynchronous, operations

register_plugin(__name__, "tensorflow", "keras", "tf_keras")  # they call us, from what the user has given them
no_calls_while(lambda: not tf.executing_eagerly())

# Our operations in a graph, by name: an operation would keep its graph alive.
_tokens: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_last: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

_Function = TypeVar("_Function", bound=Callable[..., Any])


def unconverted(function: _Function) -> _Function:
    """The function, which `tf.function` does not rewrite when it rewrites what calls it."""
    return cast(_Function, tf.autograph.experimental.do_not_convert(function))


def perform(kind: Kind, tensors: Sequence[Tensor], parameters: Parameters) -> list[Tensor]:
    """Results of an allreduce, broadcast, allgather or reducescatter, one for each of the tensors."""
    with CallGuard(parameters[0], parameters[5]):
        tensors = list(map(as_tensor, tensors))
    if not tf.executing_eagerly() and _xla.is_call(kind):
        return _xla.allreduce(tensors, parameters)
    name, reduce, root, prescale, postscale, process_set = parameters
    attributes: dict[str, Any] = {"process_set": process_set}
    if kind in (Kind.ALLREDUCE, Kind.REDUCESCATTER):
        bits = {"prescale_bits": _bits(prescale), "postscale_bits": _bits(postscale)}
        attributes.update(bits, reduce=int(reduce))
    elif kind is Kind.BROADCAST:
        attributes["root_rank"] = root
    function = getattr(operations, f"farandole_{kind.name.lower()}")
    return list(run(function, kind, name, lambda token: {"tensors": tensors, "token": token}, attributes))


def run(
    function: Callable[..., Any],
    kind: Kind,
    name: str,
    inputs: Callable[[Tensor], dict[str, Any]],
    attributes: dict[str, Any],
) -> Any:
    """The results of one of our operations; `inputs` makes them from the token, which is one of them."""
    if tf.executing_eagerly():
        if not name:
            await_earlier()
        with CallGuard(name, attributes["process_set"]), as_ours():
            return function(**inputs(_eager_token()), **attributes, **_label(name, False))
    graph = tf.compat.v1.get_default_graph()
    _xla.check_not_compiled(graph, kind.name.lower())
    with graph.name_scope(None):
        node = graph.unique_name(f"{kind.name.lower()}.{_as_node(name)}" if name else kind.name.lower())
        with tf.control_dependencies(_earlier(graph)):
            arguments = inputs(_graph_token(graph))
            result = function(**arguments, **attributes, **_label(node, True), name=f"{node}/")
    _remember(graph, node)
    return result


def _label(name: str, is_node: bool) -> dict[str, Any]:
    return {"tensor_name": name, "is_node": is_node, "site": call_site()}


def conditionally(condition: Tensor, then: Callable[[], Any], otherwise: Callable[[], Any], what: str) -> Any:
    """`tf.cond` around collectives. Their names contain its name, which counts nothing that only one rank may have."""
    with nullcontext() if tf.executing_eagerly() else tf.compat.v1.get_default_graph().name_scope(None):
        return tf.cond(condition, then, otherwise, name=f"farandole_{what}")


def _bits(factor: float) -> int:
    """An attribute for a double; TensorFlow's own have 32 bits."""
    (bits,) = struct.unpack("q", struct.pack("d", factor))
    return int(bits)


def _as_node(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_./-]", "_", name).strip("/")


def current_token() -> Tensor:
    """0 as a scalar of int32; in a graph one that is not constant for TensorFlow."""
    return _eager_token() if tf.executing_eagerly() else _graph_token(tf.compat.v1.get_default_graph())


@cache
def _eager_token() -> Tensor:
    with tf.device("CPU:0"):
        return tf.constant(0)


def _graph_token(graph: Any) -> Tensor:
    """The graph's token: an input that is not constant for TensorFlow, which computes what depends on constants once.

    It stands outside of all loops, so that each of them can have it.
    """
    if graph in _tokens:
        return graph.get_operation_by_name(_tokens[graph]).outputs[0]
    with tf.control_dependencies(None):
        token = operations.farandole_needs_jit_compile_false(name="farandole_token")
    _tokens[graph] = token.op.name
    return token


# ---- One after the other, where an operation holds a thread of TensorFlow while it waits for the other ranks


def _earlier(graph: Any) -> list[Any]:
    """The operations that the next one of the graph has to wait for."""
    if is_asynchronous():
        return []
    _warn()
    return [graph.get_operation_by_name(_last[graph])] if graph in _last else []


def _remember(graph: Any, node: str) -> None:
    if not is_asynchronous():
        _last[graph] = node


@cache
def _warn() -> None:
    warnings.warn(
        "this TensorFlow was built with a C++ library that farandole-tensorflow does not know: the operations of a "
        "graph run one after the other, and slower",
        RuntimeWarning,
        stacklevel=2,
    )
