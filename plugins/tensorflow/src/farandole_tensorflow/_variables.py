"""Broadcasts one rank's values of variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import farandole
import tensorflow as tf
from farandole import ProcessSet
from farandole.plugin import Kind, rooted

from farandole_tensorflow._adapter import Tensor, as_tensor
from farandole_tensorflow._perform import perform, unconverted

_AT_ONCE = 64  # variables in one operation: as many are in memory twice


@unconverted
def broadcast_(
    variables: Iterable[tf.Variable], root_rank: int, name: str | None = None, process_set: ProcessSet | None = None
) -> list[tf.Variable] | list[tf.Operation]:
    """Copy rank `root_rank`'s values into everybody's variables.

    Eagerly that is complete on return; in a graph, where what follows reads them or depends on what is returned.

    Args:
        variables: in the same order on all ranks; also of strings.
        root_rank: whose values all ranks get.
        name: as in `allreduce`.
        process_set: as in `allreduce`.

    Returns:
        The variables; in a TF1 graph, a list of the operations that assign to them.

    Example:
        >>> variable = tf.Variable(1.0 * hvd.rank())
        >>> _ = hvd.broadcast_([variable], root_rank=1)
        >>> float(variable)
        1.0
    """
    listed = list(variables)
    strings = [each for each in listed if _has_strings(each)]
    tensors = [each for each in listed if not _has_strings(each)]
    name = name or "variables"
    done: list[Any] = []
    for begin in range(0, len(tensors), _AT_ONCE):
        some = tensors[begin : begin + _AT_ONCE]
        parameters = rooted(root_rank, f"{name}.{begin}", process_set)
        values = perform(Kind.BROADCAST, [as_tensor(each) for each in some], parameters)
        done += [each.assign(value) for each, value in zip(some, values, strict=True)]
    if strings:
        values = _broadcast_strings(strings, root_rank, f"{name}.strings", process_set)
        done += [each.assign(value) for each, value in zip(strings, values, strict=True)]
    return done if _is_tf1() else listed


def _has_strings(variable: Any) -> bool:
    return bool(tf.as_dtype(variable.dtype).base_dtype == tf.string)


def _broadcast_strings(
    variables: list[tf.Variable], root_rank: int, name: str, process_set: ProcessSet | None
) -> list[Tensor]:
    """The root's values of these variables, sent as an object, since the core has no strings."""

    def broadcast(*values: Any) -> Any:
        return farandole.broadcast_object(values, root_rank, name, process_set)

    if tf.executing_eagerly():
        return list(map(tf.constant, broadcast(*(each.numpy() for each in variables))))
    values = [each.read_value() for each in variables]
    results = tf.numpy_function(broadcast, values, [tf.string] * len(values))
    for result, value in zip(results, values, strict=True):
        result.set_shape(value.shape)
    return list(results)


@unconverted
def broadcast_variables(
    variables: Iterable[tf.Variable], root_rank: int, process_set: ProcessSet | None = None, inplace: bool = False
) -> tf.Operation | None:
    """`broadcast_`; in a TF1 graph, the one operation that does it all.

    Args:
        variables: in the same order on all ranks, such as `model.variables`.
        root_rank: whose values all ranks get.
        process_set: as in `allreduce`.
        inplace: not needed, it is always so; accepted because Horovod does.

    Example:
        >>> variable = tf.Variable(1.0 * hvd.rank())
        >>> hvd.broadcast_variables([variable], root_rank=1)
        >>> float(variable)
        1.0
    """
    done = broadcast_(variables, root_rank, None, process_set)
    return tf.group(*done) if _is_tf1() else None


@unconverted
def broadcast_global_variables(root_rank: int) -> tf.Operation | None:
    """`broadcast_variables` of all global variables of a TF1 graph, as an operation to run in a session.

    Raises:
        RuntimeError: in eager mode and in `tf.function`, where there are no global variables.

    Example:
        >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ...     variable = tf.compat.v1.get_variable("variable", initializer=1.0 * hvd.rank())
        ...     session.run(tf.compat.v1.global_variables_initializer())
        ...     session.run(hvd.broadcast_global_variables(root_rank=1))
        ...     float(session.run(variable))
        1.0
    """
    if not _is_tf1():
        raise RuntimeError(
            "broadcast_global_variables works in the graphs of TF1, where there are global variables; call "
            "broadcast_variables(model.variables, root_rank)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]  # TensorFlow is not read
    """Copies rank `root_rank`'s global variables to all ranks once a session is created, or restored.

    For `tf.compat.v1.train.MonitoredTrainingSession` and the like.

    Example:
        >>> with tf.Graph().as_default():
        ...     variable = tf.compat.v1.get_variable("variable", initializer=1.0 * hvd.rank())
        ...     hook = hvd.BroadcastGlobalVariablesHook(root_rank=1)
        ...     with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
        ...         float(session.run(variable))
        1.0
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        """Broadcast from `root_rank`; `device` is not needed, and accepted because Horovod does."""
        super().__init__()
        self._root_rank = root_rank
        self._operation: Any = None

    def begin(self) -> None:
        """Add the operation to the graph."""
        graph = tf.compat.v1.get_default_graph()
        if self._operation is None or self._operation.graph is not graph:
            self._operation = broadcast_global_variables(self._root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Run it."""
        session.run(self._operation)


def _is_tf1() -> bool:
    return not tf.executing_eagerly() and not tf.inside_function()
