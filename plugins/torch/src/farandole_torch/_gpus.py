"""Chooses a separate GPU for each rank of a host if the script chooses none."""

from __future__ import annotations

import warnings
from functools import cache

import farandole
import torch
from farandole.plugin.native import Communicator, ProcessSets

from farandole_torch._private import when_cuda_is_initialized


def init(comm: Communicator | None = None, process_sets: ProcessSets | None = None) -> None:
    """Join the job, as `farandole.init` does, and choose the GPU numbered `local_rank()` unless the script chooses one.

    The GPU becomes torch's current device when CUDA is initialized. This function does not initialize CUDA, so
    CUDA_VISIBLE_DEVICES may still change. `torch.cuda.set_device` takes precedence, before or after this call.

    Example:
        >>> hvd.init()
        >>> hvd.is_initialized()
        True
    """
    farandole.init(comm, process_sets)
    _choose_later()


@cache  # once per process
def _choose_later() -> None:
    if not torch.cuda.is_initialized():  # otherwise the script has chosen a GPU, or already works on one
        when_cuda_is_initialized(_choose)


def _choose() -> None:
    if not farandole.is_initialized():
        return
    mine, visible = farandole.local_rank(), torch.cuda.device_count()
    if mine < visible:
        torch.cuda.set_device(mine)
    elif visible > 1:  # a single visible GPU is this rank's own
        warnings.warn(
            f"rank {farandole.rank()} is number {mine} of the {farandole.local_size()} ranks on this host and sees "
            f"{visible} GPUs only, so it shares GPU {torch.cuda.current_device()}: start fewer ranks, show it more by "
            "CUDA_VISIBLE_DEVICES, or choose with torch.cuda.set_device",
            stacklevel=2,
        )
