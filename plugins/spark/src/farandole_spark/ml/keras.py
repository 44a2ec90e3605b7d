"""Estimator and model of Keras, on TensorFlow or PyTorch.

estimator = KerasEstimator(
num_proc=2, store=Store.create("/data"), model=model, optimizer=keras.optimizers.SGD(0.1), loss="mse",
feature_cols=["x"], label_cols=["y"], batch_size=32, epochs=10,
)
model = estimator.fit(frame)
model.transform(frame).select("y", "y__output")
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import farandole
import keras
import numpy as np
from farandole.engine import pack_call, unpack_call
from pyspark.ml.param import Param

from farandole_spark._private import UNDEFINED, set_defaults
from farandole_spark.ml._accessors import ANY, param
from farandole_spark.ml._columns import Column, check_shapes
from farandole_spark.ml._estimator import FrameworkEstimator, Job
from farandole_spark.ml._keras_objects import (
    Custom,
    PackedModel,
    identity_of,
    in_shape,
    pack,
    pack_model,
    shapes_of,
    unpack,
    unpack_arrays,
)
from farandole_spark.ml._model import TrainedModel
from farandole_spark.ml._model_params import ModelArguments
from farandole_spark.ml._params import Arguments
from farandole_spark.ml._persistence import Persistent
from farandole_spark.ml._predict import Predict
from farandole_spark.ml._training import Trained, Training

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["KerasEstimator", "KerasModel"]


class _WithModel(Persistent):
    """Saves the model in Keras' format, and losses, metrics and optimizers as configurations."""

    def to_bytes(self, values: dict[str, Any]) -> bytes:
        """See the base class."""
        packed = {name: pack_model(value) if name == "model" else pack(value) for name, value in values.items()}
        return pack_call(dict, (), packed, f"{type(self).__name__}.save")

    @classmethod
    def from_bytes(cls, packed: bytes) -> dict[str, Any]:
        """See the base class."""
        _, _, values = unpack_call(packed)
        custom = values.get("custom_objects")
        with keras.utils.custom_object_scope(dict(custom or {})):
            return {
                name: value.load(custom) if isinstance(value, PackedModel) else unpack(value, custom)
                for name, value in values.items()
            }


class KerasArguments(Arguments, total=False):
    """The keyword arguments of `KerasEstimator`."""

    custom_objects: Custom | None
    continuous_cols: Sequence[str] | None
    categorical_cols: Sequence[str] | None
    checkpoint_callback: Any
    backend_env: Mapping[str, str] | None


class KerasEstimator(_WithModel, FrameworkEstimator):
    """Trains a Keras model on several ranks. `explainParams()` describes the parameters.

    Optimizer and loss are by default those with which the model was compiled. As in Horovod, the learning rate is
    multiplied by the number of ranks during the training. Callbacks run on every rank, except TensorBoard's, which runs
    on rank 0 and writes into the run's logs.
    """

    framework = "keras"
    custom_objects, setCustomObjects, getCustomObjects = param(
        "custom_objects", ANY, "classes and functions that Keras needs to load the model"
    )
    checkpoint_callback, setCheckpointCallback, getCheckpointCallback = param(
        "checkpoint_callback", ANY, "a ModelCheckpoint; what it keeps is the result"
    )
    backend_env, setBackendEnv, getBackendEnv = param("backend_env", ANY, "variables for the ranks")

    def __init__(self, **arguments: Unpack[KerasArguments]) -> None:
        super().__init__()
        set_defaults(self, custom_objects={}, backend_env={})
        self.setParams(**arguments)

    def check_model(self, columns: Mapping[str, Column]) -> None:
        """Compare the columns with the model's shapes. Raises ArgumentError if they do not fit."""
        model = self.getModel()
        check_shapes(columns, self.getFeatureCols(), shapes_of(model.input_shape), "input")
        labels = self.getLabelCols()
        outputs = [tuple(each) for each in self.getLabelShapes() or shapes_of(model.output_shape)]
        single = [None if columns[name].size == 1 else shape for name, shape in zip(labels, outputs, strict=False)]
        check_shapes(columns, labels, [*single, *outputs[len(single) :]], "label")  # classes may be numbers

    def _optimizer_and_loss(self) -> tuple[Any, Any]:
        model = self.getModel()
        found = self.getOptimizer() or getattr(model, "optimizer", None), self.getLoss() or getattr(model, "loss", None)
        if not all(found):
            raise farandole.ArgumentError("KerasEstimator needs an optimizer and a loss, or a compiled model.")
        return found

    def described(self, value: Any) -> Any:
        """See the base class."""
        return super().described(identity_of(value))

    def job(self, training: Training) -> Job:
        """See the base class."""
        from farandole_spark.ml._keras_training import KerasPlan, train

        optimizer, loss = self._optimizer_and_loss()
        plan = KerasPlan(
            model=pack_model(self.getModel()),
            optimizer=pack(optimizer),
            loss=pack(loss),
            loss_weights=self.getLossWeights(),
            metrics=pack(self.getMetrics()),
            callbacks=self.getCallbacks(),
            checkpoint_callback=self.getCheckpointCallback(),
            compression=self.getGradientCompression(),
            custom_objects=self.getCustomObjects(),
            label_shapes=self.getLabelShapes(),
            backward_passes=self.getBackwardPassesPerStep(),
        )
        return train, plan, {"KERAS_BACKEND": plan.model.backend, **self.getBackendEnv()}

    def trained_model(self, trained: Trained, run_id: str, columns: Mapping[str, Column]) -> KerasModel:
        """Return the transformer, with the model compiled as for the training."""
        custom = self.getCustomObjects()
        optimizer, loss = self._optimizer_and_loss()
        with keras.utils.custom_object_scope(dict(custom)):
            model = pack_model(self.getModel()).load(custom)
            loss, metrics = unpack(pack(loss), custom), unpack(pack(self.getMetrics()), custom)
            fresh = keras.optimizers.get(unpack(pack(optimizer), custom))
            model.compile(optimizer=fresh, loss=loss, loss_weights=self.getLossWeights(), metrics=metrics)
        model.set_weights(unpack_arrays(trained.model)[: len(model.weights)])
        return self.get_model_class()(
            **self._get_model_kwargs(model, trained.history, run_id, columns, keras.backend.floatx())
        )

    def get_model_class(self) -> type[KerasModel]:
        """Return the class of the transformer, for derived estimators."""
        return KerasModel

    def _get_model_kwargs(
        self, model: Any, history: Any, run_id: str, metadata: Mapping[str, Column], floatx: str
    ) -> dict[str, Any]:
        return {
            "history": history,
            "model": model,
            "feature_columns": self.getFeatureCols(),
            "label_columns": self.getLabelCols(),
            "custom_objects": self.getCustomObjects(),
            "run_id": run_id,
            "_metadata": metadata,
            "_floatx": floatx,
        }


class KerasModelArguments(ModelArguments, total=False):
    """The keyword arguments of `KerasModel`."""

    custom_objects: Custom | None
    _floatx: str | None


class KerasModel(_WithModel, TrainedModel):
    """A trained Keras model; `transform` adds `<label>__output` for each label.

    A prediction of one number for a scalar label has the label's type; other predictions are vectors. The history has a
    list of the epochs' values for each name. The model is compiled.
    """

    custom_objects, setCustomObjects, getCustomObjects = param(
        "custom_objects", ANY, "classes and functions that Keras needs to load the model"
    )
    _floatx = Param(UNDEFINED, "_floatx", "Keras' type of floats")

    def __init__(self, **values: Unpack[KerasModelArguments]) -> None:
        super().__init__()
        set_defaults(self, custom_objects={}, _floatx="float32")
        self.setParams(**values)

    def output_sizes(self) -> list[int]:
        """Return how many numbers a row of each output has."""
        return [math.prod(each or 1 for each in shape[1:]) for shape in shapes_of(self.getModel().output_shape)]

    def prediction(self) -> tuple[Callable[..., Predict], tuple[Any, ...]]:
        """See the base class."""
        return predictor, (pack_model(self.getModel()), self.getCustomObjects(), self.getOrDefault(self._floatx))


def predictor(packed: PackedModel, custom: Custom, floatx: str) -> Predict:
    """Return a function of arrays that calls the model."""
    model = packed.load(custom)
    shapes = shapes_of(model.input_shape)

    def predict(features: Sequence[Any]) -> list[Any]:
        arrays = [each.astype(floatx) if each.dtype.kind == "f" else each for each in map(np.asarray, features)]
        inputs = [in_shape(each, 1, shape) for each, shape in zip(arrays, shapes, strict=True)]
        outputs = model.predict_on_batch(inputs[0] if len(inputs) == 1 else inputs)
        listed = outputs.values() if isinstance(outputs, dict) else outputs
        return list(listed) if isinstance(outputs, dict | list | tuple) else [outputs]

    return predict
