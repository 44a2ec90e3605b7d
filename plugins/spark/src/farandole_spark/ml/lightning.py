"""Estimator and model of Lightning.

    estimator = TorchEstimator(
        num_proc=2, store=Store.create("/data"), model=module, feature_cols=["x"], label_cols=["y"],
        input_shapes=[[-1, 4]], batch_size=32, epochs=10,
    )
    model = estimator.fit(frame)
    model.transform(frame).select("y", "y__output")

The steps of the LightningModule get a dict with a tensor for each column.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import farandole
import torch

from farandole_spark._private import set_defaults
from farandole_spark.ml._accessors import ANY, BOOL, INT, INT_OR_NONE, param
from farandole_spark.ml._columns import Column, check_shapes
from farandole_spark.ml._estimator import FrameworkEstimator, Job
from farandole_spark.ml._training import Trained, Training
from farandole_spark.ml.torch import (
    TorchArguments,
    TorchModel,
    TorchParams,
    check_optimizer,
    losses_of,
    places_of,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["TorchEstimator", "TorchModel"]

_SET_BY_ESTIMATOR = {
    "strategy": "leave it out",
    "use_distributed_sampler": "leave it out",
    "max_epochs": "set epochs of the estimator",
    "accelerator": "set use_gpu or num_gpus of the estimator",
    "devices": "set num_proc of the estimator, which trains with one device on each rank",
    "num_nodes": "set num_proc of the estimator",
}
"""Arguments of the Trainer that `trainer_args` may not have, with what to do instead."""


class LightningArguments(TorchArguments, total=False):
    """The keyword arguments of `TorchEstimator`."""

    transformation_edit_fields: Any
    transformation_removed_fields: Any
    trainer_args: Mapping[str, Any] | None
    num_gpus: int | None
    logger: Any
    log_every_n_steps: int
    loader_num_epochs: int | None
    terminate_on_nan: bool
    profiler: Any
    debug_data_loader: bool
    train_async_data_loader_queue_size: int | None
    val_async_data_loader_queue_size: int | None


class TorchEstimator(TorchParams, FrameworkEstimator):
    """Trains a LightningModule on several ranks. `explainParams()` describes the parameters.

    The steps of the module get a dict with a tensor for each column. A plain module of PyTorch also works, with an
    optimizer and a loss. Learning rates are not changed, as in Horovod's estimator.
    """

    framework = "lightning"
    trainer_args, setTrainerArgs, getTrainerArgs = param("trainer_args", ANY, "more arguments of Lightning's Trainer")
    num_gpus, setNumGPUs, getNumGPUs = param(
        "num_gpus", INT_OR_NONE, "0 trains without a GPU; each rank has at most one"
    )
    logger, setLogger, getLogger = param("logger", ANY, "a logger of Lightning")
    log_every_n_steps, setLogEveryNSteps, getLogEveryNSteps = param("log_every_n_steps", INT, "steps between logs")
    terminate_on_nan, setTerminateOnNan, getTerminateOnNan = param("terminate_on_nan", BOOL, "raise at a bad loss")
    profiler, setProfiler, getProfiler = param("profiler", ANY, "a profiler of Lightning")
    loader_num_epochs, setLoaderNumEpochs, getLoaderNumEpochs = param("loader_num_epochs", ANY)
    debug_data_loader, setDebugDataLoader, getDebugDataLoader = param("debug_data_loader", ANY)
    train_async_data_loader_queue_size, setTrainAsyncDataLoaderQueueSize, getTrainAsyncDataLoaderQueueSize = param(
        "train_async_data_loader_queue_size", ANY
    )
    val_async_data_loader_queue_size, setValAsyncDataLoaderQueueSize, getValAsyncDataLoaderQueueSize = param(
        "val_async_data_loader_queue_size", ANY
    )

    def __init__(self, **arguments: Unpack[LightningArguments]) -> None:
        super().__init__()
        set_defaults(self, log_every_n_steps=50, terminate_on_nan=False)
        self.setParams(**arguments)

    def check_model(self, columns: Mapping[str, Column]) -> None:
        """Compare the columns with `input_shapes`. Raises ArgumentError if they do not fit."""
        if self.getTrainMinibatchFn() is not None:
            raise farandole.ArgumentError("train_minibatch_fn is not taken; write a training_step.")
        if not _is_lightning(self.getModel()):
            check_optimizer(self)
        if shapes := self.getInputShapes():
            check_shapes(columns, self.getFeatureCols(), shapes, "input")

    def job(self, training: Training) -> Job:
        """See the base class. Raises ArgumentError for `trainer_args` that the estimator sets."""
        from farandole_spark.ml._lightning_training import LightningPlan, Plain, train

        plain = None
        if not _is_lightning(self.getModel()):
            plain = Plain(self.getOptimizer(), losses_of(self), places_of(training, self.getInputShapes()))
        plan = LightningPlan(
            model=self.getModel(),
            plain=plain,
            stops_at_nan=self.getTerminateOnNan(),
            uses_gpu=self.getUseGpu() and self.getNumGPUs() != 0,
            arguments=self._trainer_arguments(),
        )
        return train, plan, {}

    def _trainer_arguments(self) -> dict[str, Any]:
        """The user's arguments of the Trainer, from parameters of the estimator and from `trainer_args`."""
        arguments = {
            "logger": self.getLogger() or False,
            "log_every_n_steps": self.getLogEveryNSteps(),
            "profiler": self.getProfiler(),
            "accumulate_grad_batches": self.getBackwardPassesPerStep(),
            **(self.getTrainerArgs() or {}),
        }
        for name, instead in _SET_BY_ESTIMATOR.items():
            if name in arguments:
                raise farandole.ArgumentError(
                    f"trainer_args cannot have {name!r}, which the estimator sets; {instead}."
                )
        more = arguments.pop("callbacks", None) or []
        own = self.getCallbacks() or []
        return {**arguments, "callbacks": [*own, *(more if isinstance(more, list | tuple) else [more])]}

    def trained_model(self, trained: Trained, run_id: str, columns: Mapping[str, Column]) -> TorchModel:
        """The transformer."""
        model = copy.deepcopy(self.getModel()).eval()
        model.load_state_dict(torch.load(io.BytesIO(trained.model), map_location="cpu", weights_only=True))
        optimizer = self.getOptimizer()
        return self.get_model_class()(**self._get_model_kwargs(model, trained.history, optimizer, run_id, columns))


def _is_lightning(model: torch.nn.Module) -> bool:
    return any(kind.__name__ == "LightningModule" for kind in type(model).__mro__)
