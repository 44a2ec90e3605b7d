"""Estimator and model of PyTorch.

estimator = TorchEstimator(
    num_proc=2, store=Store.create("/data"), model=model, optimizer=optimizer, loss=torch.nn.functional.mse_loss,
    feature_cols=["x"], label_cols=["y"], input_shapes=[[-1, 4]], batch_size=32, epochs=10,
)
model = estimator.fit(frame)
model.transform(frame).select("y", "y__output")
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import farandole
import numpy as np
import torch

from farandole_spark.ml._accessors import ANY, param
from farandole_spark.ml._columns import Column, check_shapes
from farandole_spark.ml._estimator import FrameworkEstimator, Job
from farandole_spark.ml._model import TrainedModel
from farandole_spark.ml._model_params import ModelArguments
from farandole_spark.ml._params import Arguments, EstimatorParams
from farandole_spark.ml._predict import Predict, PredictRow
from farandole_spark.ml._torch_losses import Losses, Places, float_type_of
from farandole_spark.ml._training import Trained, Training

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

Shapes = Sequence[Sequence[int]]
__all__ = ["TorchEstimator", "TorchModel"]


class TorchArguments(Arguments, total=False):
    """The keyword arguments of `TorchEstimator`."""

    loss_constructors: Any
    continuous_cols: Sequence[str] | None
    categorical_cols: Sequence[str] | None
    input_shapes: Sequence[Sequence[int]] | None
    train_minibatch_fn: Callable[..., Any] | None
    backward_passes_per_step: int


class TorchParams(EstimatorParams):
    """The parameters of both estimators that train modules of PyTorch."""

    input_shapes, setInputShapes, getInputShapes = param(
        "input_shapes", ANY, "the shape of each input's batch, by default [-1, size]"
    )
    loss_constructors, setLossConstructors, getLossConstructors = param(
        "loss_constructors", ANY, "make the losses on ranks, from `model` and `optimizer`"
    )
    train_minibatch_fn, setTrainMinibatchFn, getTrainMinibatchFn = param("train_minibatch_fn", ANY, "does a step")

    def setParams(self, **values: Any) -> Self:
        """See the base class. Raises ArgumentError if both a loss and loss constructors are given."""
        if values.get("loss") is not None and values.get("loss_constructors") is not None:
            raise farandole.ArgumentError("give loss or loss_constructors, not both.")
        return super().setParams(**values)

    def get_model_class(self) -> type[TorchModel]:
        """Return the class of the transformer, for derived estimators."""
        return TorchModel

    def _get_model_kwargs(
        self, model: Any, history: Any, optimizer: Any, run_id: str, metadata: Mapping[str, Column]
    ) -> dict[str, Any]:
        return {
            "history": history,
            "model": model,
            "optimizer": optimizer,
            "feature_columns": self.getFeatureCols(),
            "input_shapes": self.getInputShapes(),
            "label_columns": self.getLabelCols(),
            "run_id": run_id,
            "_metadata": metadata,
            "loss": self.getLoss(),
            "loss_constructors": self.getLossConstructors(),
        }


class TorchEstimator(TorchParams, FrameworkEstimator):
    """Trains a PyTorch model on several ranks. `explainParams()` describes the parameters.

    Features, labels and weights reach the model as floats of its own type. As in Horovod, the learning rates are
    multiplied by the number of ranks during the training.

    `train_minibatch_fn` is called with `model, optimizer, transform_outputs, loss_fn, inputs, labels, sample_weights,
    backward_passes_per_step, batch_idx`.
    """

    framework = "torch"

    def __init__(self, **arguments: Unpack[TorchArguments]) -> None:
        super().__init__()
        self.setParams(**arguments)

    def check_model(self, columns: Mapping[str, Column]) -> None:
        """Compare the columns with `input_shapes`. Raises ArgumentError if they do not fit."""
        check_optimizer(self)
        if shapes := self.getInputShapes():
            check_shapes(columns, self.getFeatureCols(), shapes, "input")
        if shapes := self.getLabelShapes():
            check_shapes(columns, self.getLabelCols(), shapes, "label")

    def job(self, training: Training) -> Job:
        """See the base class."""
        from farandole_spark.ml._torch_training import TorchPlan, train

        plan = TorchPlan(
            model=self.getModel(),
            optimizer=self.getOptimizer(),
            losses=losses_of(self),
            metrics=[each if isinstance(each, list | tuple) else [each] for each in self.getMetrics()],
            places=places_of(training, self.getInputShapes()),
            compression=self.getGradientCompression(),
            backward_passes=self.getBackwardPassesPerStep(),
            train_minibatch=self.getTrainMinibatchFn(),
        )
        return train, plan, {}

    def trained_model(self, trained: Trained, run_id: str, columns: Mapping[str, Column]) -> TorchModel:
        """Return the transformer with the trained model."""
        state = torch.load(io.BytesIO(trained.model), map_location="cpu", weights_only=True)
        model, optimizer = copy.deepcopy((self.getModel(), self.getOptimizer()))
        model.eval().load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return self.get_model_class()(**self._get_model_kwargs(model, trained.history, optimizer, run_id, columns))


class TorchModelArguments(ModelArguments, total=False):
    """The keyword arguments of `TorchModel`."""

    input_shapes: Shapes | None
    optimizer: torch.optim.Optimizer | None
    loss: Any
    loss_constructors: Any


class TorchModel(TrainedModel):
    """A trained PyTorch model; `transform` adds `<label>__output` for each label.

    A prediction of one number for a scalar label has the label's type; other predictions are vectors. The history has a
    dict for each epoch, with `epoch`, `train` and `validation`. The optimizer has its state after the training.
    """

    optimizer, setOptimizer, getOptimizer = param("optimizer", ANY, "the optimizer, with its state after the training")
    input_shapes, setInputShapes, getInputShapes = param("input_shapes", ANY, "shapes of batches")
    loss, setLoss, getLoss = param("loss", ANY, "the loss of the training")
    loss_constructors, setLossConstructors, getLossConstructors = param("loss_constructors", ANY, "made the losses")

    def __init__(self, **values: Unpack[TorchModelArguments]) -> None:
        super().__init__()
        self.setParams(**values)

    def _shapes(self) -> Shapes:
        columns = self.columns_by_name()
        return self.getInputShapes() or [[-1, columns[name].size] for name in self.getFeatureColumns()]

    def output_sizes(self) -> list[int]:
        """Return how many numbers a row of each output has, from a call of the model with zeros."""
        zeros = [torch.zeros([2 if each == -1 else each for each in shape]).numpy() for shape in self._shapes()]
        make, args = self.prediction()
        return [int(each[0].size) for each in make(*args)(zeros)]

    def prediction(self) -> tuple[Callable[..., Predict], tuple[Any, ...]]:
        """See the base class."""
        return predictor, (self._copy_on_cpu(), self._shapes())

    def get_prediction_fn(self) -> Callable[[torch.nn.Module, Any], Any]:
        """Return a function of model and Row that returns the outputs. `transform` uses that of a derived class."""
        names, shapes = self.getFeatureColumns(), self._shapes()
        return lambda model, row: predictor(model, shapes)([np.asarray([row[name]]) for name in names])

    def prediction_of_rows(self) -> tuple[Callable[..., PredictRow], tuple[Any, ...]] | None:
        """See the base class."""
        if type(self).get_prediction_fn is TorchModel.get_prediction_fn:
            return None
        return predictor_of_rows, (self._copy_on_cpu(), self.get_prediction_fn())

    def _copy_on_cpu(self) -> torch.nn.Module:
        return copy.deepcopy(self.getModel()).cpu().eval()


def check_optimizer(estimator: TorchParams) -> None:
    """Raise ArgumentError if the optimizer is not one of PyTorch, or has other parameters than the model."""
    if not isinstance(estimator.getOptimizer(), torch.optim.Optimizer):
        raise farandole.ArgumentError("give an optimizer of torch.optim, made with the model's parameters.")
    own = {id(each) for each in estimator.getModel().parameters()}
    if any(id(each) not in own for group in estimator.getOptimizer().param_groups for each in group["params"]):
        raise farandole.ArgumentError("the optimizer has parameters of another model; make it with this model's.")


def losses_of(estimator: TorchParams) -> Losses:
    """The losses with their weights, and functions that make them. Raises ArgumentError where they are not as many."""
    labels = len(estimator.getLabelCols())
    losses, made = _listed(estimator.getLoss(), labels), _listed(estimator.getLossConstructors(), labels)
    weights = list(estimator.getLossWeights() or [1.0] * labels)
    if len(weights) != labels or len(losses or made) != labels:
        raise farandole.ArgumentError(f"give a loss, or {labels} of them, and as many loss_weights as labels.")
    return Losses(losses, weights, estimator.getLabelShapes(), made)


def _listed(value: Any, count: int) -> list[Any]:
    """Return a list with a value for each label."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value] * count


def places_of(training: Training, input_shapes: Sequence[Sequence[int]] | None) -> Places:
    """Return the columns in the order of the model. An input without a shape gets that of its column."""
    sizes = {column.name: column.size for column in training.train.columns}
    shapes = input_shapes or [[-1, sizes[name]] for name in training.features]
    return Places(training.features, training.labels, training.weight, shapes)


def predictor(model: torch.nn.Module, shapes: Sequence[Sequence[int]]) -> Predict:
    """Return a function of arrays that calls the model with floats of its own type."""
    dtype = float_type_of(model)

    def predict(features: Sequence[Any]) -> list[Any]:
        inputs = [torch.as_tensor(each).to(dtype).reshape(list(s)) for each, s in zip(features, shapes, strict=True)]
        with torch.no_grad():
            outputs = model(*inputs)
        return _arrays(outputs)

    return predict


def predictor_of_rows(model: torch.nn.Module, function: Callable[[torch.nn.Module, Any], Any]) -> PredictRow:
    """Return a function of a Row that calls the model through the user's function."""

    def predict(row: Any) -> list[Any]:
        with torch.no_grad():
            return _arrays(function(model, row))

    return predict


def _arrays(outputs: Any) -> list[Any]:
    listed = outputs if isinstance(outputs, list | tuple) else [outputs]
    return [torch.as_tensor(each).double().numpy() for each in listed]
