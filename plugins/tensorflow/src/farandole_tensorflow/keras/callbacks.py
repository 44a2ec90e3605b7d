"""Callbacks for `model.fit`. The first base of each class has its docstring; TensorFlow is not read by mypy."""
# ruff: noqa: D101

import tensorflow as tf
from farandole.plugin.keras import BestOnly, Broadcasting, MetricAveraging, Scalars, Schedule, Warmup

from farandole_tensorflow._keras import FRAMEWORK, RATE

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "StepScalarsCallback",
]


class BestModelCheckpoint(BestOnly, tf.keras.callbacks.ModelCheckpoint):  # type: ignore[misc, unused-ignore]
    pass


class BroadcastGlobalVariablesCallback(Broadcasting, tf.keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    farandole_framework = FRAMEWORK


class LearningRateScheduleCallback(Schedule, tf.keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    farandole_log = RATE


class LearningRateWarmupCallback(Warmup, tf.keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    farandole_log = RATE


class MetricAverageCallback(MetricAveraging, tf.keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    pass


class StepScalarsCallback(Scalars, tf.keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    farandole_framework = FRAMEWORK
