"""DistributedOptimizer, from farandole_torch."""

from __future__ import annotations

import functools
from typing import Any

import farandole_torch
import torch


class _DistributedOptimizer(torch.optim.Optimizer):  # type: ignore[misc, unused-ignore]  # torch is not read
    """For annotations. As in Horovod, a distributed optimizer has another class, derived from the one it had."""


@functools.wraps(farandole_torch.DistributedOptimizer)
def DistributedOptimizer(*args: Any, **kwargs: Any) -> Any:
    """As `farandole_torch.DistributedOptimizer`; the optimizer's class is one of this module."""
    optimizer = farandole_torch.DistributedOptimizer(*args, **kwargs)
    type(optimizer).__module__ = __name__  # by which PyTorch Lightning knows an optimizer that is wrapped already
    return optimizer
