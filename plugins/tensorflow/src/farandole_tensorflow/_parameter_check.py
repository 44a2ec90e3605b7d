"""Warns if ranks that reduce gradients together train models with different variables.

    1st reduction of the same variables' gradients    each rank computes the variables' checksums
    2nd                                               ranks exchange these and the current checksums, and the lowest
                                                      rank warns of variables that differed both times

Both times, because a program may broadcast before its second step, and because equal variables may differ in the last
bits after the first step, for example if hosts have different processors.

Invariants:
1. All ranks decide alike whether a reduction compares: by how often these gradients were reduced since the world began
   or its last join ended. They decide when the reduction runs, since ranks trace a function at different times, and
   count by variables, since each trace has its own tape.
2. Reductions that TensorFlow may run in any order are counted separately, by their place in the graph, which is part of
   the exchange's name. A place is the same in all traces of a function.
3. No Python function waits for another rank: it would block a thread that TensorFlow may need to compute a gradient.
   The exchange is an operation; a `numpy_function` runs before and after it.

Not checked: graphs of TF1, which may run in another process than the one that built them; functions compiled by XLA;
and graphs whose operations block a thread while they wait.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from farandole import ProcessSet
from farandole.plugin import Kind, plain
from farandole.plugin.parameter_check import (
    COMPARISON,
    NOT_COMPARED,
    awaits_broadcast,
    checks_parameters,
    checksum,
    join_count,
    row_of,
    sums_by_rank,
    warn_about_differences,
    world_number,
)

from farandole_tensorflow._adapter import Tensor
from farandole_tensorflow._native import is_asynchronous, operations
from farandole_tensorflow._perform import conditionally, perform
from farandole_tensorflow._private import is_compiled

Variable = Any  # of TensorFlow, or of Keras 3

_NO_PLACE = 0  # in eager mode, where reductions run in the order of the program
_REMEDY = "broadcast_variables(model.variables, root_rank=0), or give fit the BroadcastGlobalVariablesCallback(0),"


def compare(variables: Sequence[Variable], name: str, process_set: ProcessSet | None) -> list[Tensor]:
    """Count a reduction of these variables' gradients, and compare the variables if it is the second one.

    name: of the exchange of gradients.

    Returns:
        Control inputs for the gradients' reductions, so that no variable changes before the comparison.
    """
    variables = [each for each in variables if hasattr(each, "assign")]  # a tape may watch tensors, too
    if not variables:
        return []
    name = f"{COMPARISON}{name}"
    if tf.executing_eagerly():
        found = _comparison(name, variables, process_set)
        if found.is_due(_NO_PLACE):
            found.tell(found.exchange(tf.constant(found.row())).numpy())
        return []
    return _in_graph(name, variables, process_set) if _can_be_in_graph() else []


def _can_be_in_graph() -> bool:
    graph = tf.compat.v1.get_default_graph()
    is_tf1 = not tf.compat.v1.executing_eagerly_outside_functions()
    return is_asynchronous() and not is_tf1 and not is_compiled(graph)


def _in_graph(name: str, variables: Sequence[Variable], process_set: ProcessSet | None) -> list[Tensor]:
    found = _comparison(name, variables, process_set)

    def exchange() -> Tensor:
        rows = found.exchange(_called(found.row, [], tf.int64, [None]))
        return _called(found.tell, [rows], tf.bool, [])

    with tf.compat.v1.get_default_graph().name_scope(None), tf.device("CPU:0"):
        place = operations.farandole_place(name="farandole_place")
        is_due = _called(found.is_due, [place], tf.bool, [])
        return [conditionally(is_due, exchange, lambda: tf.constant(False), "compare")]


def _called(function: Callable[..., Any], inputs: list[Tensor], dtype: Any, shape: list[int | None]) -> Tensor:
    result = tf.numpy_function(function, inputs, dtype)
    result.set_shape(shape)
    return result


class _Comparison:
    """Compares one list of variables under one name. Thread safety: several graphs may count at once."""

    def __init__(
        self, name: str, variables: Sequence[Variable], process_set: ProcessSet | None, forget: Callable[[Any], Any]
    ) -> None:
        """Keep only weak references to the variables; `forget` is called when one of them is deleted."""
        self._name, self._process_set = name, process_set
        self._variables = [weakref.ref(each, forget) for each in variables]
        self._names = [getattr(each, "path", each.name) for each in variables]
        self._is_wanted = checks_parameters()
        self._lock = threading.Lock()
        self._since = (-1, -1)  # the world and the number of joins in which counting began
        self._warned_in = -1  # a world
        self._counts: dict[int, int] = {}  # reductions since then, by place; not counted beyond 2
        self._before_first: list[int] = []  # checksums before the first reduction

    def is_due(self, place: Any) -> np.bool_:
        """Count a reduction, and return whether it is the one that compares."""
        key = int(place)
        if self._since == (world_number(), join_count()) and self._counts.get(key, 0) >= 2:
            return np.False_
        with self._lock:  # also held while computing checksums, which the second reduction needs
            return np.bool_(self._counted(key) == 2)

    def row(self) -> Any:
        """Return this rank's contribution to the exchange."""
        return np.array(row_of([*self._before_first, *self._checksums()]), np.int64)

    def exchange(self, row: Tensor) -> Tensor:
        """Gather the rows of all ranks."""
        return perform(Kind.ALLGATHER, [row], plain(self._name, self._process_set))[0]

    def tell(self, rows: Any) -> np.bool_:
        """Warn on the lowest rank about variables that differ, at most once in a world."""
        if self._warned_in == world_number():
            return np.True_
        self._warned_in = world_number()
        of_ranks = _later_of_different(sums_by_rank(rows.tolist()), len(self._names))
        warn_about_differences(self._names, of_ranks, _REMEDY)
        return np.True_

    def _counted(self, place: int) -> int:
        """Return the number of this reduction at its place, beginning with 1; 0 if it does not count."""
        now = world_number(), join_count()
        if self._since != now:
            self._since, self._counts, self._before_first = now, {}, []
        if awaits_broadcast():
            return 0
        if not self._before_first:
            self._before_first = self._checksums()
        self._counts[place] = self._counts.get(place, 0) + 1
        return self._counts[place]

    def _checksums(self) -> list[int]:
        return [_checksum(each()) if self._is_wanted else NOT_COMPARED for each in self._variables]


# By name, process set and the ids of the variables. An entry is dropped as soon as one of its variables is deleted.
_comparisons: dict[tuple[Any, ...], _Comparison] = {}


def _comparison(name: str, variables: Sequence[Variable], process_set: ProcessSet | None) -> _Comparison:
    key = (name, plain(None, process_set)[-1], *map(id, variables))
    found = _comparisons.get(key)
    if found is None:
        found = _Comparison(name, variables, process_set, lambda _: _comparisons.pop(key, None))
        _comparisons[key] = found
    return found


def _checksum(variable: Variable) -> int:
    """Return NOT_COMPARED for a variable that is deleted, or that is initialized only when its function runs."""
    if variable is None:
        return NOT_COMPARED
    try:
        with tf.init_scope():
            values = np.asarray(variable)
    except tf.errors.OpError:
        return NOT_COMPARED
    return checksum(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


def _later_of_different(of_ranks: Mapping[int, Sequence[int]], count: int) -> dict[int, list[int]]:
    """Keep the later half of each rank's checksums where the earlier ones differ; NOT_COMPARED elsewhere.

    The result is empty for ranks with another number of variables.
    """
    same_model = {rank: sums for rank, sums in of_ranks.items() if len(sums) == 2 * count}
    earlier = [{sums[i] for sums in same_model.values()} - {NOT_COMPARED} for i in range(count)]
    kept = {
        rank: [
            sums[count + i] if len(earlier[i]) > 1 and sums[i] != NOT_COMPARED else NOT_COMPARED for i in range(count)
        ]
        for rank, sums in same_model.items()
    }
    return {rank: kept.get(rank, []) for rank in of_ranks}
