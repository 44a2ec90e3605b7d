"""Callbacks for `model.fit`; see farandole.keras."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from farandole.keras import Callbacks

from farandole_tensorflow._variables import broadcast_variables
from farandole_tensorflow._xla import is_used


def _broadcast(variables: list[Any], root_rank: int) -> None:
    broadcast_variables(variables, root_rank)


_callbacks = Callbacks(tf.keras, _broadcast, compiler=lambda: "" if is_used() else "XLA")

BestModelCheckpoint = _callbacks.BestModelCheckpoint
BroadcastGlobalVariablesCallback = _callbacks.BroadcastGlobalVariablesCallback
LearningRateScheduleCallback = _callbacks.LearningRateScheduleCallback
LearningRateWarmupCallback = _callbacks.LearningRateWarmupCallback
MetricAverageCallback = _callbacks.MetricAverageCallback

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
