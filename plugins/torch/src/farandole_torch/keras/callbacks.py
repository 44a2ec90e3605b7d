"""Callbacks for `model.fit`. The first base of each class has its docstring; Keras is not read by mypy."""
# ruff: noqa: D101

import keras
from farandole.plugin.keras import BestOnly, Broadcasting, MetricAveraging, Scalars, Schedule, Warmup

from farandole_torch._keras import FRAMEWORK

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "StepScalarsCallback",
]


class BestModelCheckpoint(BestOnly, keras.callbacks.ModelCheckpoint):  # type: ignore[misc, unused-ignore]
    pass


class BroadcastGlobalVariablesCallback(Broadcasting, keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    farandole_framework = FRAMEWORK


class LearningRateScheduleCallback(Schedule, keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    pass


class LearningRateWarmupCallback(Warmup, keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    pass


class MetricAverageCallback(MetricAveraging, keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    pass


class StepScalarsCallback(Scalars, keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    farandole_framework = FRAMEWORK
