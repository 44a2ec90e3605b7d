"""Elastic training. The first base of each class has its docstring; Keras is not read by mypy."""
# ruff: noqa: D101

import keras
from farandole.elastic import Batches, ElasticSampler, ObjectState, State, run
from farandole.plugin.keras import Commit, StateOfModel, UpdateBatch, UpdateData, UpdateEpoch

from farandole_torch._keras import FRAMEWORK
from farandole_torch._loader import DataLoader

__all__ = [
    "Batches",
    "CommitStateCallback",
    "DataLoader",
    "ElasticSampler",
    "KerasState",
    "ObjectState",
    "State",
    "UpdateBatchStateCallback",
    "UpdateDataCallback",
    "UpdateEpochStateCallback",
    "run",
]


class KerasState(StateOfModel):
    _framework = FRAMEWORK


class CommitStateCallback(Commit, keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    pass


class UpdateBatchStateCallback(UpdateBatch, keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    pass


class UpdateEpochStateCallback(UpdateEpoch, keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    pass


class UpdateDataCallback(UpdateData, keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    pass
