"""Elastic training with Keras: a state of a model and its optimizer, and callbacks for `model.fit`."""

from __future__ import annotations

from functools import partial
from typing import Any

from farandole._api.errors import ArgumentError, ArgumentTypeError
from farandole._elastic.handlers import StateHandler, VariablesHandler
from farandole._elastic.state import ObjectState
from farandole._keras.agreement import Checked
from farandole._keras.callbacks import build_optimizer, variables_of_optimizer
from farandole._keras.exchange import Framework
from farandole._keras.optimizer import Distributed
from farandole._start.world import is_initialized, size

Logs = dict[str, Any] | None


class StateOfModel(ObjectState):
    """A state with a model of Keras and its optimizer, which stay the objects that they are.

    `commit()` copies the weights and the optimizer's variables.

    Example:
        >>> model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        >>> model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse", jit_compile=False)
        >>> state = hvd.elastic.KerasState(model, epoch=0)
        >>> model.set_weights([np.ones((1, 1))])
        >>> state.commit()
        >>> model.set_weights([np.zeros((1, 1))])
        >>> state.restore()
        >>> model.get_weights()[0].tolist()
        [[1.0]]
    """

    _framework: Framework[Any, Any]

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """The state has `model`, `optimizer` and the others as attributes; see ObjectState.

        Args:
            model: a model that is built: it has its weights.
            optimizer: by default that of the compiled model.
            kwargs: the other attributes, such as epoch=0 and batch=0 for the callbacks.

        Raises:
            ValueError: the model has no weights yet.
        """
        if not getattr(model, "built", True) or not model.weights:
            raise ArgumentError(
                "the model has no weights yet, so there is nothing to save: give it an Input layer, or call "
                "model.build(input_shape), before the state"
            )
        optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
        if optimizer is not None:
            build_optimizer(optimizer, model)
        self._arrays = self._framework
        self._is_alone = is_initialized() and size() == 1
        super().__init__(model=model, optimizer=optimizer, **kwargs)

    def _handler_of(self, value: Any) -> StateHandler | None:
        framework = self._framework
        if isinstance(value, framework.keras.layers.Layer):
            return VariablesHandler(value, lambda: list(value.weights), framework, partial(self._renew, value))
        if hasattr(value, "apply_gradients") and hasattr(value, "get_config"):
            return VariablesHandler(
                value, lambda: variables_of_optimizer(value), framework, partial(_forget_step, value)
            )
        return super()._handler_of(value)

    def reset(self) -> None:
        """Forget what depends on the ranks, or on a step that has failed."""
        super().reset()
        self._is_alone = size() == 1

    def _renew(self, model: Any) -> None:
        """Let Keras make the step anew where it was made for a rank alone, without our operations."""
        if self._is_alone and size() > 1 and hasattr(model, "train_function"):
            model.train_function = None


def _forget_step(optimizer: Any) -> None:
    if isinstance(optimizer, Distributed):
        optimizer._farandole.forget()


class Commit(Checked):
    """Commits the state after every `batches_per_commit` batches, and after each epoch.

    Put it after the other callbacks of the state, which say what is done.

    Example:
        >>> model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse", jit_compile=False)
        >>> state = hvd.elastic.KerasState(model, epoch=0)
        >>> commit = hvd.elastic.CommitStateCallback(state, batches_per_commit=2)
        >>> _ = model.fit(np.ones((4, 1)), np.ones((4, 1)), batch_size=1, callbacks=[commit], verbose=0)
        >>> trained = model.get_weights()
        >>> model.set_weights([np.zeros((1, 1)), np.zeros(1)])
        >>> state.restore()
        >>> all(np.array_equal(*pair) for pair in zip(model.get_weights(), trained))
        True
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        """Commit `state`. Raises ValueError for no batch."""
        if batches_per_commit < 1:
            raise ArgumentError(f"batches_per_commit={batches_per_commit} must be at least 1")
        super().__init__()
        self._state, self._batches_per_commit = state, batches_per_commit
        self._batches = 0  # since the last commit

    def on_train_begin(self, logs: Logs = None) -> None:
        super().on_train_begin(logs)
        self._batches = 0

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._batches += 1
        if self._batches == self._batches_per_commit:
            self._commit()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._commit()

    def _commit(self) -> None:
        self._batches = 0
        self._state.commit()


class UpdateBatch(Checked):
    """Keeps `state.batch`: how many batches of this epoch are done, before a change of the ranks and after it.

    A `fit` of one epoch then takes `steps_per_epoch=steps - state.batch`.

    Example:
        >>> model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse", jit_compile=False)
        >>> state = hvd.elastic.KerasState(model, batch=0)
        >>> batches = []
        >>> see = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: batches.append(state.batch))
        >>> callbacks = [hvd.elastic.UpdateBatchStateCallback(state), see]
        >>> _ = model.fit(np.ones((2, 1)), np.ones((2, 1)), batch_size=1, callbacks=callbacks, verbose=0)
        >>> batches, state.batch
        ([1, 2], 0)
    """

    def __init__(self, state: Any) -> None:
        """Set `batch` of `state`, which must have it."""
        super().__init__()
        _check_attribute(state, "batch")
        self._state, self._start = state, 0

    def on_train_begin(self, logs: Logs = None) -> None:
        super().on_train_begin(logs)
        self._start = self._state.batch

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._state.batch = self._start + batch + 1

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._state.batch = self._start = 0


class UpdateEpoch(Checked):
    """Keeps `state.epoch`: how many epochs are done, before a change of the ranks and after it.

    `fit` then takes `epochs=epochs - state.epoch`, or `initial_epoch=state.epoch, epochs=epochs`.

    Example:
        >>> model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse", jit_compile=False)
        >>> state = hvd.elastic.KerasState(model, epoch=0)
        >>> update = hvd.elastic.UpdateEpochStateCallback(state)
        >>> for _ in range(2):
        ...     _ = model.fit(np.ones((1, 1)), np.ones((1, 1)), callbacks=[update], verbose=0)
        >>> state.epoch
        2
    """

    def __init__(self, state: Any) -> None:
        """Set `epoch` of `state`, which must have it."""
        super().__init__()
        _check_attribute(state, "epoch")
        self._state = state

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._state.epoch += 1


class UpdateData(Checked):
    """Records the batches of a `Dataset` that are done: those that `fit` gets are some ahead of its steps.

    Put it before the CommitStateCallback. Where Keras runs on PyTorch, a `DataLoader` records them itself.

    Example:
        >>> class Data:  # in place of a Dataset
        ...     def record(self, count):
        ...         print(count, "done")
        ...
        ...     def end(self):
        ...         print("the pass is over")
        >>> model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse", jit_compile=False)
        >>> update = hvd.elastic.UpdateDataCallback(Data())
        >>> _ = model.fit(np.ones((2, 1)), np.ones((2, 1)), batch_size=1, callbacks=[update], verbose=0)
        1 done
        2 done
        the pass is over
    """

    def __init__(self, data: Any) -> None:
        """Record the batches of `data`, whose `batches()` are given to `fit`. Raises TypeError for other data."""
        if not hasattr(data, "record"):
            raise ArgumentTypeError(f"UpdateDataCallback takes a Dataset of hvd.elastic, not {type(data).__name__}")
        super().__init__()
        self._data, self._epochs = data, 0

    def on_train_begin(self, logs: Logs = None) -> None:
        super().on_train_begin(logs)
        self._epochs = 0

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._epochs += 1
        if self._epochs > 1:
            raise ArgumentError(
                "fit would use the batches of one pass for two epochs: call fit once for each pass, with "
                "data.batches(), initial_epoch=epoch and epochs=epoch + 1"
            )

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._data.record(batch + 1)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._data.end()


def _check_attribute(state: Any, name: str) -> None:
    if not hasattr(state, name):
        raise ArgumentError(f"the state has no {name!r} to keep: make it with KerasState(model, {name}=0)")
