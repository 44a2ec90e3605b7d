"""Callbacks for `model.fit`; see farandole.keras."""

from __future__ import annotations

from typing import Any

import keras
from farandole.keras import Callbacks

from farandole_torch._adapter import collectives


def _broadcast(variables: list[Any], root_rank: int) -> None:
    handles = [
        collectives.broadcast_async_(variable.value.detach(), root_rank, f"variables.{place}")
        for place, variable in enumerate(variables)
    ]
    for handle in handles:
        handle.wait()


_callbacks = Callbacks(keras, _broadcast)

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
