"""Elastic training with TensorFlow: a rank is lost or leaves, and the others go on in the same processes.

state = hvd.elastic.TensorFlowState(model.variables, epoch=0)

@hvd.elastic.run
def train(state): ...

train(state)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import tensorflow as tf
from farandole.elastic import Batches, ElasticSampler, ObjectState, State
from farandole.plugin.elastic import StateHandler, VariablesHandler, run_within

from farandole_tensorflow import _copies
from farandole_tensorflow._errors import recoverable
from farandole_tensorflow._loader import Dataset
from farandole_tensorflow._session import OfSession
from farandole_tensorflow._variables import broadcast_variables

__all__ = [
    "Batches",
    "Dataset",
    "ElasticSampler",
    "ObjectState",
    "State",
    "TensorFlowKerasState",
    "TensorFlowState",
    "run",
]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=State)


def run(func: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """As `farandole.elastic.run`, also where TensorFlow raises an error of its own for the loss of a rank.

    Example:
        >>> @hvd.elastic.run
        ... def train(state):
        ...     while state.step < 3:
        ...         state.step += 1
        ...         state.commit()
        >>> state = hvd.elastic.ObjectState(step=0)
        >>> train(state)
        >>> state.step
        3
    """
    return run_within(_translated, func)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except tf.errors.OpError as error:
        ours = recoverable(error)
        if ours is None:
            raise
        raise ours from error


class TensorFlowState(ObjectState):
    """A state with variables, which stay the objects that they are.

    Example:
        >>> weight = tf.Variable([0.0])
        >>> state = hvd.elastic.TensorFlowState([weight], step=0)
        >>> state.commit()
        >>> _ = weight.assign([1.0])
        >>> state.restore()
        >>> weight.numpy().tolist()
        [0.0]
    """

    def __init__(self, variables: Iterable[Any] | None = None, session: Any = None, **kwargs: Any) -> None:
        """The state has the variables as its attribute `variables`, and those of `kwargs`: see ObjectState.

        Args:
            variables: in the same order on all ranks, such as those of a model and of its optimizer; in a graph of TF1
                by default all global ones.
            session: of a graph of TF1; by default the current one.
            kwargs: the other attributes.

        Raises:
            ValueError: no variables are given, and there is no graph of TF1.
        """
        if variables is None:
            if tf.executing_eagerly():
                raise ValueError("TensorFlowState needs the variables to save, such as model.variables")
            variables = tf.compat.v1.global_variables()
        self._arrays = self._own = _Variables() if tf.executing_eagerly() else OfSession(session)
        super().__init__(variables=_Listed(variables), **kwargs)

    def _handler_of(self, value: Any) -> StateHandler | None:
        if isinstance(value, _Listed):
            return VariablesHandler(value, lambda: value, self._own)
        return super()._handler_of(value)


class _Listed(list[Any]):
    """The variables of a state."""


class _Variables:
    """Variables outside of graphs."""

    copy, write = staticmethod(_copies.copy), staticmethod(_copies.write)
    size_bytes, memory = staticmethod(_copies.size_bytes), staticmethod(_copies.memory)
    read, fill = staticmethod(_copies.read), staticmethod(_copies.fill)

    def broadcast(self, arrays: Sequence[Any], root_rank: int) -> None:
        broadcast_variables(arrays, root_rank)


def TensorFlowKerasState(model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> Any:
    """A state with a model of Keras and its optimizer: `farandole_tensorflow.keras.elastic.KerasState`.

    Args:
        model: a model that is built.
        optimizer: by default that of the compiled model.
        backend: not needed; accepted because Horovod does.
        kwargs: the other attributes.

    Raises:
        ValueError: the model has no weights yet.

    Example:
        >>> model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1)])
        >>> state = hvd.elastic.TensorFlowKerasState(model, tf.keras.optimizers.SGD(0.1), epoch=0)
        >>> state.commit()
        >>> state.epoch = 1
        >>> state.restore()
        >>> state.epoch
        0
    """
    from farandole_tensorflow.keras import elastic

    return elastic.KerasState(model, optimizer, **kwargs)
