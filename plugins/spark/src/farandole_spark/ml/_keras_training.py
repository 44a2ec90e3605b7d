"""Trains a Keras model on a rank, with any framework of Keras. Only ranks import this module."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import farandole.keras as hvd
import keras
import numpy as np

from farandole_spark.ml._keras_objects import (
    Custom,
    PackedModel,
    in_shape,
    pack_arrays,
    shapes_of,
    structured,
    unpack,
    unpack_arrays,
)
from farandole_spark.ml._reader import Stream
from farandole_spark.ml._training import Trained, Training


@dataclass(frozen=True)
class KerasPlan:
    """The parameters of a training with Keras. Objects of Keras are packed."""

    model: PackedModel
    optimizer: Any
    loss: Any
    loss_weights: Sequence[float] | None
    metrics: Any
    callbacks: Sequence[Any]
    checkpoint_callback: Any
    compression: Any
    custom_objects: Custom
    label_shapes: Sequence[Sequence[int]] | None
    backward_passes: int


def train(training: Training, plan: KerasPlan) -> Trained | None:
    """Train on this rank. All ranks call it, and rank 0 returns the result."""
    hvd.init()
    with (
        _device(training.use_gpu),
        keras.utils.custom_object_scope(dict(plan.custom_objects)),
        tempfile.TemporaryDirectory() as folder,
    ):
        rank = _Rank(training, plan, Path(folder))
        rank.resume()
        rank.run_epochs()
        return Trained(rank.result(), rank.history) if hvd.rank() == 0 else None


class _Rank:
    """A rank with its copy of the model. `folder` is for files that callbacks write."""

    def __init__(self, training: Training, plan: KerasPlan, folder: Path) -> None:
        self.training, self.plan = training, plan
        self.epoch, self.history = 0, dict[str, list[float]]()
        self._folder, self._best = folder, plan.checkpoint_callback if hvd.rank() == 0 else None
        self._model = plan.model.load(plan.custom_objects)
        optimizer = keras.optimizers.get(unpack(plan.optimizer, plan.custom_objects))
        metrics = unpack(plan.metrics, plan.custom_objects)
        weighted = {"weighted_metrics": metrics} if training.weight else {"metrics": metrics}
        self._model.compile(
            optimizer=hvd.DistributedOptimizer(
                optimizer, compression=plan.compression, backward_passes_per_step=plan.backward_passes
            ),
            loss=unpack(plan.loss, plan.custom_objects),
            loss_weights=list(plan.loss_weights) if plan.loss_weights else None,
            **weighted,
        )

    def resume(self) -> None:
        """Load the state of the run's checkpoint, if there is one."""
        self._scale_rate(hvd.size())
        if self._best is not None:
            self._best.filepath = str(self._best_file)
        if (checkpoint := self.training.checkpoint()) is None:
            return
        self.epoch, self.history = checkpoint.epochs, checkpoint.history
        self._model.optimizer.build(self._model.trainable_variables)
        variables, arrays = self._variables(), unpack_arrays(checkpoint.state)
        for variable, value in zip(variables, arrays, strict=False):
            variable.assign(value)
        self._scale_rate(hvd.size())  # the checkpoint has the user's rate
        if self._best is not None and len(arrays) > len(variables):
            self._best.best = float(arrays[-2])
            self._best_file.write_bytes(arrays[-1].tobytes())

    def _variables(self) -> list[Any]:
        return [*self._model.weights, *self._model.optimizer.variables]

    def packed(self) -> bytes:
        """Return the state as bytes, with the learning rate that the user gave."""
        rate = self._model.optimizer.learning_rate if self._has_plain_rate else None
        # Only rank 0 gets here. The live rate is not changed, because scaling it back and forth would round it.
        arrays = []
        for each in self._variables():
            value = keras.ops.convert_to_numpy(each)
            arrays.append(np.asarray(value / hvd.size(), value.dtype) if each is rate else value)
        if self._best is not None and self._best_file.exists():
            arrays += [np.array(self._best.best), np.frombuffer(self._best_file.read_bytes(), np.uint8)]
        return pack_arrays(arrays)

    def result(self) -> bytes:
        """Return the state as bytes, with the weights that a checkpoint callback has kept, if there is one."""
        if self._best is not None and self._best_file.exists():
            self._model.load_weights(self._best_file)
        return self.packed()

    @property
    def _best_file(self) -> Path:
        weights_only = self.plan.checkpoint_callback.save_weights_only
        return self._folder / ("best.weights.h5" if weights_only else "best.keras")

    def _scale_rate(self, factor: float) -> None:
        """Scale the learning rate, as Horovod's estimators do with the number of ranks. A schedule is not changed."""
        if self._has_plain_rate:
            self._model.optimizer.learning_rate = float(self._model.optimizer.learning_rate) * factor

    @property
    def _has_plain_rate(self) -> bool:
        """Return whether the learning rate is a number rather than a schedule."""
        return not isinstance(self._model.optimizer.get_config().get("learning_rate"), dict)

    def begin_epoch(self, epoch: int) -> None:
        """Seed random numbers, so that dropout is the same in a resumed run."""
        seed = self.training.seed_of(epoch, hvd.rank())
        keras.utils.set_random_seed(seed)
        generators = [each for each in self._model.variables if each.name == "seed_generator_state"]
        for number, each in enumerate(generators):
            each.assign([(seed + number) % 2**31, 0])

    def end_epoch(self, logs: Mapping[str, float]) -> None:
        """Record the measurements, and save the state and what callbacks have written."""
        training = self.training
        self.epoch += 1
        for name, value in logs.items():
            self.history.setdefault(name, []).append(float(value))
        if hvd.rank() == 0 and training.store.saving_runs():
            training.save(self.epoch, self.history, self.packed(), self._folder / "run")

    def run_epochs(self) -> None:
        """Run the remaining epochs."""
        training, size = self.training, hvd.size()
        if self.epoch >= training.epochs:
            return
        floats = keras.backend.floatx()
        validation: dict[str, Any] = {}
        if steps := training.steps_of_validation(size):
            data = self._data(lambda: training.validation_blocks(hvd.rank(), size, floats))
            validation = {"validation_data": data, "validation_steps": steps}
        self._model.fit(
            self._data(lambda: training.train_blocks(hvd.rank(), size, self.epoch, floats)),
            epochs=training.epochs,
            initial_epoch=self.epoch,
            steps_per_epoch=training.steps_of_epoch(size),
            callbacks=self._callbacks(),
            verbose={0: 0, 1: 2}.get(training.verbose, training.verbose) if hvd.rank() == 0 else 0,
            **validation,
        )

    def _callbacks(self) -> list[Any]:
        found = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
        boards = getattr(keras.callbacks, "TensorBoard", ())
        for callback in self.plan.callbacks:
            if isinstance(callback, boards):
                callback.log_dir = str(self._folder / "run" / self.training.store.get_logs_subdir())
            if not isinstance(callback, boards) or hvd.rank() == 0:
                found.append(callback)
        return [*found, *([self._best] if self._best is not None else []), _EndOfEpoch(self)]

    def _data(self, make: Any) -> Any:
        if keras.backend.backend() == "tensorflow":
            from farandole_spark.ml._keras_tensorflow import dataset_of

            return dataset_of(lambda: self._blocks(make()))
        return self._batches(make())

    def _batches(self, stream: Stream) -> Iterator[Any]:
        for block in self._blocks(stream):
            flat = [each for part in block for each in part]
            for number in range(len(flat[0])):
                yield structured([each[number] for each in part] for part in block)

    def _blocks(self, stream: Stream) -> Iterator[tuple[list[Any], list[Any], list[Any]]]:
        """Yield inputs, labels and weights, whose first dimension is that of the batches."""
        training = self.training
        inputs = shapes_of(self._model.input_shape)
        outputs = self.plan.label_shapes or shapes_of(self._model.output_shape)
        for block in stream:
            yield (
                [in_shape(block[name], 2, shape) for name, shape in zip(training.features, inputs, strict=True)],
                [in_shape(block[name], 2, shape) for name, shape in zip(training.labels, outputs, strict=True)],
                [block[training.weight]] * len(training.labels) if training.weight else [],
            )


class _EndOfEpoch(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is not read
    def __init__(self, rank: _Rank) -> None:
        super().__init__()
        self._rank = rank

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        self._rank.begin_epoch(epoch)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        self._rank.end_epoch(logs or {})


def _device(use_gpu: bool) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which Keras computes on this rank's GPU, or on the CPU."""
    if keras.backend.backend() == "tensorflow":
        from farandole_spark.ml._keras_tensorflow import choose_gpu

        choose_gpu(hvd.local_rank() if use_gpu else None)
        return contextlib.nullcontext()
    import torch

    gpus = torch.cuda.device_count() if use_gpu else 0
    return keras.device(f"gpu:{hvd.local_rank() % gpus}" if gpus else "cpu")  # type: ignore[no-any-return]
