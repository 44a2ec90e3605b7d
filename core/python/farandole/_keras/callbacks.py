"""Callbacks of Keras, without their base class, which the plugin gives them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from farandole._api.errors import MismatchError
from farandole._api.metrics import average_metrics
from farandole._api.objects import allgather_object
from farandole._keras.agreement import Checked, InStep, say_once
from farandole._keras.exchange import Framework
from farandole._keras.optimizer import innermost
from farandole._keras.private import create_state, key_of
from farandole._start.world import rank, size
from farandole._training.parameter_check import await_broadcast

Logs = dict[str, Any] | None


class Broadcasting(InStep):
    """Copies rank `root_rank`'s weights and optimizer state to all ranks before the first step of each `fit`.

    Where a rank's model gets its weights only in the first step, after that step. Each rank keeps its own seeds of
    random numbers. A model compiled in a way that has no place for Farandole's operations loses that compilation, with
    a warning. Another warning tells where the model's optimizer is not distributed.

    Raises:
        MismatchError: on all ranks, which have different numbers of batches: at the begin of `fit`, or where Keras does
            not know the numbers, when the data of a rank end before those of another.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])  # its first weights are random
        >>> model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse", jit_compile=False)
        >>> start = hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank=0)
        >>> _ = model.fit(np.ones((1, 1)), np.ones((1, 1)), callbacks=[start], verbose=0)
        >>> weights = hvd.allgather_object(model.get_weights()[0].tolist())
        >>> weights[0] == weights[1]
        True
    """

    farandole_framework: Framework[Any, Any]

    def __init__(self, root_rank: int, device: str = "", local_variables: Iterable[Any] | None = None) -> None:
        """Broadcast from `root_rank`.

        Args:
            root_rank: whose values all ranks get.
            device: not needed; accepted because Horovod does.
            local_variables: variables that each rank keeps as they are.
        """
        super().__init__()
        self._supports_tf_logs = True  # of Keras 2, which need not fetch each step's logs for us
        self._root_rank = root_rank
        self._local = {key_of(each): each for each in local_variables or ()}  # held, so that no other gets its key
        self._done = False

    def register_local_var(self, var: Any) -> None:
        """Leave this variable as it is on each rank."""
        self._local[key_of(var)] = var

    def set_model(self, model: Any) -> None:
        super().set_model(model)  # type: ignore[misc]
        compiler = self.farandole_framework.compiler()
        if compiler and size() > 1 and getattr(model, "jit_compile", False):
            model.jit_compile = False
            model.train_function = None  # it may have been made for an earlier fit
            say_once(
                f"jit_compile is turned off for this model: {compiler} has no kernels for Farandole's "
                "operations. To turn it off yourself: model.compile(..., jit_compile=False)"
            )

    def on_train_begin(self, logs: Logs = None) -> None:
        super().on_train_begin(logs)
        self._done = size() == 1
        if self._done:
            return
        is_built = bool(self.model.built)
        if is_built:
            build_optimizer(self.model.optimizer, self.model)
        all_are_built = all(allgather_object(is_built, name="model is built"))
        await_broadcast(not all_are_built)  # a batch may be several steps: steps_per_execution
        if all_are_built:
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        super().on_train_batch_end(batch, logs)
        if not self._done:
            self._broadcast()

    def _broadcast(self) -> None:
        variables = [*self.model.weights, *variables_of_optimizer(self.model.optimizer)]
        shared = [each for each in variables if key_of(each) not in self._local]
        self.farandole_framework.broadcast(shared, self._root_rank)
        await_broadcast(False)
        self._done = True


class MetricAveraging(InStep):
    """Replaces an epoch's metrics by their averages over the ranks.

    For callbacks that come after it in the list, such as ReduceLROnPlateau, which then act alike on all ranks. Metrics
    with several elements, such as F1Score(average=None), are averaged element by element.

    Raises:
        MismatchError: the ranks have different metrics at the end of an epoch, or different numbers of batches.

    Example:
        >>> logs = {"loss": 1.0 * hvd.rank()}
        >>> hvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)  # as Keras does after an epoch
        >>> logs
        {'loss': 0.5}
    """

    async_safe = True  # of Keras 3, which may run what we do after a batch beside the next one

    def __init__(self, device: str = "") -> None:
        """Average; `device` is not needed, and accepted because Horovod does."""
        super().__init__()
        self._supports_tf_logs = True  # see Broadcasting

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        super().on_epoch_end(epoch, logs)
        if size() == 1 or logs is None:
            return
        numeric = {
            key: value for key, value in logs.items() if hasattr(value, "__float__") or hasattr(value, "__index__")
        }
        mine = {key: _elements(key, value) for key, value in numeric.items()}
        numbers = {name: each for elements, _ in mine.values() for name, each in elements.items()}
        try:
            averages = average_metrics(numbers, name="metrics of the epoch")
        except MismatchError as error:
            raise MismatchError(
                f"after epoch {epoch + 1}: {error}, so compile the model in the same way on all ranks, and give "
                "validation_data to all ranks or to none"
            ) from None
        logs.update({key: _assembled(averages, *each) for key, each in mine.items()})


class Scalars(Checked):
    """Writes what steps cost, as `StepScalars` does, and puts the latest into an epoch's logs.

    Put it before keras.callbacks.TensorBoard, which then shows them as other metrics.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD()), loss="mse", jit_compile=False)
        >>> scalars = hvd.callbacks.StepScalarsCallback(every=1)
        >>> history = model.fit(np.ones((4, 1)), np.ones((4, 1)), callbacks=[scalars], verbose=0)
        >>> history.history["farandole/step_seconds"][0] > 0
        True
    """

    farandole_framework: Framework[Any, Any]

    def __init__(self, writer: Any = None, *, every: int = 50) -> None:
        """As in `StepScalars`; steps are batches, counted from the first `fit` on."""
        super().__init__()
        self._writer, self._every = writer, every
        self._scalars: Any = None

    def on_train_begin(self, logs: Logs = None) -> None:
        super().on_train_begin(logs)
        if self._scalars is None:
            self._scalars = self.farandole_framework.step_scalars(self._writer, every=self._every)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._scalars.step()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if logs is not None:
            logs.update(self._scalars.latest)


class BestOnly(Checked):
    """keras.callbacks.ModelCheckpoint of the best model only, saved by rank 0 alone.

    Put MetricAverageCallback before it, so that what is best is so on all ranks.

    Example:
        >>> import os, tempfile
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD()), loss="mse", jit_compile=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = f"{folder}/best.weights.h5"
        ...     best = hvd.callbacks.BestModelCheckpoint("loss", save_weights_only=True, filepath=file)
        ...     _ = model.fit(np.ones((1, 1)), np.ones((1, 1)), callbacks=[best], verbose=0)
        ...     os.listdir(folder) == (["best.weights.h5"] if hvd.rank() == 0 else [])
        True
    """

    filepath: Any

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: Any = None,
    ) -> None:
        """As in ModelCheckpoint; `filepath` may also be set later, as the attribute of that name."""
        placeholder = "best.weights.h5" if save_weights_only else "best.keras"
        super().__init__(  # type: ignore[call-arg]
            filepath or placeholder,
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        if filepath is None:
            self.filepath = None

    def on_train_begin(self, logs: Logs = None) -> None:
        if self.filepath is None:
            raise ValueError("BestModelCheckpoint does not know where to save: give it a filepath=")
        super().on_train_begin(logs)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if rank() == 0:
            super().on_train_batch_end(batch, logs)  # type: ignore[misc]

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if rank() == 0:
            super().on_epoch_end(epoch, logs)  # type: ignore[misc]


def build_optimizer(optimizer: Any, model: Any) -> None:
    """Create the variables of the optimizer, if there is one."""
    if optimizer is not None and not getattr(optimizer, "built", False):
        create_state(optimizer, model.trainable_variables)


def variables_of_optimizer(optimizer: Any) -> list[Any]:
    """All variables of the optimizer, including its learning rate."""
    if optimizer is None:
        return []
    found = optimizer.variables
    variables = list(found if isinstance(found, list | tuple) else found())
    rate = innermost(optimizer).learning_rate  # which Keras 2 does not count among them
    if hasattr(rate, "assign") and key_of(rate) not in map(key_of, variables):
        variables.append(rate)
    return variables


def _elements(key: str, value: Any) -> tuple[dict[str, Any], tuple[int, ...]]:
    """The elements of a metric under names of their own, and its shape; () for a single one."""
    import numpy as np  # which Keras needs, and Farandole does not

    try:
        array = np.asarray(value.tolist() if hasattr(value, "tolist") else value, np.float64)
    except (TypeError, ValueError):
        return {key: value}, ()  # which average_metrics refuses on all ranks
    if array.size == 1:
        return {key: float(array.item())}, ()
    return {f"{key}{list(index)}": float(array[index]) for index in np.ndindex(array.shape)}, array.shape


def _assembled(averages: dict[str, float], elements: dict[str, Any], shape: tuple[int, ...]) -> Any:
    """Undo `_elements`."""
    import numpy as np

    return np.reshape([averages[name] for name in elements], shape) if shape else averages[next(iter(elements))]
