"""A GradScaler judges the reduced gradients, so that all ranks skip a step or none.

PyTorch calls no hook before a GradScaler reads the gradients, so the methods that begin this reduce them first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch


@cache
def reduce_before_unscaling() -> None:
    """From now on, an optimizer's `_farandole.before_unscaling` is called before a GradScaler unscales gradients."""
    scaler: Any = torch.amp.GradScaler
    scaler.step, scaler.unscale_ = _reducing_first(scaler.step), _reducing_first(scaler.unscale_)


def _reducing_first(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def reduced_first(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        watching = getattr(optimizer, "_farandole", None)
        if watching is not None and scaler.is_enabled():
            watching.before_unscaling()
        return method(scaler, optimizer, *args, **kwargs)

    return reduced_first
