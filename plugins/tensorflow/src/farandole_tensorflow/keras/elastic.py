"""Elastic training. The first base of each class has its docstring; TensorFlow is not read by mypy."""
# ruff: noqa: D101

import tensorflow as tf
from farandole.elastic import Batches, ElasticSampler, ObjectState, State
from farandole.plugin.keras import Commit, StateOfModel, UpdateBatch, UpdateData, UpdateEpoch

from farandole_tensorflow._keras import FRAMEWORK
from farandole_tensorflow._loader import Dataset
from farandole_tensorflow.elastic import run

__all__ = [
    "Batches",
    "CommitStateCallback",
    "Dataset",
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


class CommitStateCallback(Commit, tf.keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    pass


class UpdateBatchStateCallback(UpdateBatch, tf.keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    pass


class UpdateEpochStateCallback(UpdateEpoch, tf.keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    pass


class UpdateDataCallback(UpdateData, tf.keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    pass
