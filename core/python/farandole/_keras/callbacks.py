"""Callbacks of Keras, without their base class, which `callbacks` gives them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from farandole._api.errors import MismatchError
from farandole._api.metrics import average_metrics
from farandole._api.objects import allgather_object
from farandole._keras.exchange import Framework
from farandole._keras.learning_rate import Schedule, Warmup
from farandole._keras.optimizer import innermost, is_distributed
from farandole._keras.private import create_state, key_of
from farandole._start.world import rank, size

Logs = dict[str, Any] | None


def callbacks(keras: Any, framework: Framework, name: str) -> ModuleType:
    """The callbacks' classes for one Keras and one framework, as a module."""
    base, checkpoint = keras.callbacks.Callback, keras.callbacks.ModelCheckpoint
    means = {"farandole_framework": framework}
    # As Keras's own callbacks call it, whose entry in the logs would stand beside ours otherwise.
    rate = {"farandole_log": "lr" if is_keras_2(keras) else "learning_rate"}
    classes: list[tuple[str, type, type, dict[str, Any]]] = [
        ("BestModelCheckpoint", BestOnly, checkpoint, {}),
        ("BroadcastGlobalVariablesCallback", Broadcasting, base, means),
        ("LearningRateScheduleCallback", Schedule, base, rate),
        ("LearningRateWarmupCallback", Warmup, base, rate),
        ("MetricAverageCallback", MetricAveraging, base, {}),
        ("StepScalarsCallback", Scalars, base, means),
    ]
    made = ModuleType(name, "Callbacks for `model.fit`.")
    for title, mixin, keras_class, more in classes:
        body = {"__doc__": mixin.__doc__, "__module__": name, **more}
        setattr(made, title, type(title, (mixin, keras_class), body))
    vars(made)["__all__"] = [title for title, *_ in classes]
    return made


def is_keras_2(keras: Any) -> bool:
    """True for Keras 2. TensorFlow's own Keras 2 does not say its version."""
    return bool(getattr(keras, "__version__", "2").startswith("2"))


class Broadcasting:
    """Copies rank `root_rank`'s weights and optimizer state to all ranks before the first step of each `fit`.

    Where a rank's model gets its weights only in the first step, after that step. Each rank keeps its own seeds of
    random numbers. A model compiled in a way that has no place for Farandole's operations loses that compilation, which
    is said once.

    Raises:
        ValueError: at the begin of `fit`, on several ranks: the model's optimizer is not distributed.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])  # its first weights are random
        >>> model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse", jit_compile=False)
        >>> start = hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank=0)
        >>> _ = model.fit(np.ones((1, 1)), np.ones((1, 1)), callbacks=[start], verbose=0)
        >>> weights = hvd.allgather_object(model.get_weights()[0].tolist())
        >>> weights[0] == weights[1]
        True
    """

    model: Any
    farandole_framework: Framework

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
            _say_once(
                f"jit_compile is turned off for this model: {compiler} has no kernels for Farandole's "
                "operations. To say so yourself: model.compile(..., jit_compile=False)"
            )

    def on_train_begin(self, logs: Logs = None) -> None:
        self._done = size() == 1
        if self._done:
            return
        _check_distributed(self.model)
        is_built = bool(self.model.built)
        if is_built:
            build_optimizer(self.model.optimizer, self.model)
        if all(allgather_object(is_built, name="model is built")):
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if not self._done:
            self._broadcast()

    def _broadcast(self) -> None:
        variables = [*self.model.weights, *variables_of_optimizer(self.model.optimizer)]
        shared = [each for each in variables if key_of(each) not in self._local]
        self.farandole_framework.broadcast(shared, self._root_rank)
        self._done = True


class MetricAveraging:
    """Replaces an epoch's metrics by their averages over the ranks.

    For callbacks that come after it in the list, such as ReduceLROnPlateau, which then act alike on all ranks.

    Example:
        >>> logs = {"loss": 1.0 * hvd.rank()}
        >>> hvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)  # as Keras does after an epoch
        >>> logs
        {'loss': 0.5}
    """

    def __init__(self, device: str = "") -> None:
        """Average; `device` is not needed, and accepted because Horovod does."""
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if size() == 1 or logs is None:
            return
        mine = {key: float(value) for key, value in logs.items() if _is_number(value)}
        try:
            logs.update(average_metrics(mine, name="metrics of the epoch"))
        except MismatchError as error:
            raise MismatchError(
                f"after epoch {epoch + 1}: {error}, so compile the model alike on all ranks, and give all or none "
                "validation_data"
            ) from None


class Scalars:
    """Writes what steps cost, as `StepScalars` does, and puts the latest into an epoch's logs.

    Put it before keras.callbacks.TensorBoard, which then shows them as other metrics.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile("sgd", loss="mse")
        >>> scalars = hvd.callbacks.StepScalarsCallback(every=1)
        >>> history = model.fit(np.ones((4, 1)), np.ones((4, 1)), callbacks=[scalars], verbose=0)
        >>> history.history["farandole/step_seconds"][0] > 0
        True
    """

    farandole_framework: Framework

    def __init__(self, writer: Any = None, every: int = 50) -> None:
        """As in `StepScalars`; steps are batches, counted from the first `fit` on."""
        super().__init__()
        self._arguments = writer, every
        self._scalars: Any = None

    def on_train_begin(self, logs: Logs = None) -> None:
        if self._scalars is None:
            self._scalars = self.farandole_framework.step_scalars(*self._arguments)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._scalars.step()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if logs is not None:
            logs.update(self._scalars.latest)


class BestOnly:
    """keras.callbacks.ModelCheckpoint of the best model only, saved by rank 0 alone.

    Put MetricAverageCallback before it, so that what is best is so on all ranks.

    Example:
        >>> import os, tempfile
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile("sgd", loss="mse")
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
        super().on_train_begin(logs)  # type: ignore[misc]

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if rank() == 0:
            super().on_train_batch_end(batch, logs)  # type: ignore[misc]

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if rank() == 0:
            super().on_epoch_end(epoch, logs)  # type: ignore[misc]


def _check_distributed(model: Any) -> None:
    """Raises where ranks would start alike and then diverge, as with a model that Keras itself has loaded."""
    own_step = getattr(type(model).train_step, "__module__", "").split(".")[0] not in ("keras", "tf_keras")
    if own_step or is_distributed(model.optimizer):
        return
    raise ValueError(
        f"the model's optimizer, {type(model.optimizer).__name__}, is not distributed, and each rank would train by "
        "itself: compile the model with hvd.DistributedOptimizer(optimizer); a saved model that had one is loaded by "
        "hvd.load_model(path), not by keras.models.load_model"
    )


def build_optimizer(optimizer: Any, model: Any) -> None:
    """Create the optimizer's variables."""
    if not getattr(optimizer, "built", False):
        create_state(optimizer, model.trainable_variables)


def variables_of_optimizer(optimizer: Any) -> list[Any]:
    """All that it remembers, its learning rate included."""
    found = optimizer.variables
    variables = list(found if isinstance(found, list | tuple) else found())
    rate = innermost(optimizer).learning_rate  # which Keras 2 does not count among them
    if hasattr(rate, "assign") and key_of(rate) not in map(key_of, variables):
        variables.append(rate)
    return variables


def _is_number(value: Any) -> bool:
    return not isinstance(value, str) and (hasattr(value, "__float__") or hasattr(value, "__index__"))


_said: set[str] = set()


def _say_once(text: str) -> None:
    if text not in _said and rank() == 0:
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    _said.add(text)
