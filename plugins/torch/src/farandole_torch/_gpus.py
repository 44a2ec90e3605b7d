"""A GPU of its own for each rank of a host, where the script chooses none."""

from __future__ import annotations

import warnings
from functools import cache

import farandole
import torch
from farandole.plugin.native import Communicator, ProcessSets

from farandole_torch._private import when_cuda_is_initialized


def init(comm: Communicator | None = None, process_sets: ProcessSets | None = None) -> None:
    """As `farandole.init`. A script that chooses no GPU gets this rank's: that of its `local_rank()`.

    It becomes torch's current device when CUDA is initialized, which this function does not do; by then
    CUDA_VISIBLE_DEVICES may still change. `torch.cuda.set_device`, before or after, is obeyed.

    Example:
        >>> hvd.init()
        >>> hvd.is_initialized()
        True
    """
    farandole.init(comm, process_sets)
    _choose_later()


@cache  # for the process
def _choose_later() -> None:
    if not torch.cuda.is_initialized():  # else the script has chosen, or works on one already
        when_cuda_is_initialized(_choose)


def _choose() -> None:
    if not farandole.is_initialized():
        return
    mine, visible = farandole.local_rank(), torch.cuda.device_count()
    if mine < visible:
        torch.cuda.set_device(mine)
    elif visible > 1:  # one that each rank sees alone is its own
        warnings.warn(
            f"rank {farandole.rank()} is number {mine} of the {farandole.local_size()} ranks on this host and sees "
            f"{visible} GPUs only, so it shares GPU {torch.cuda.current_device()}: start fewer ranks, show it more by "
            "CUDA_VISIBLE_DEVICES, or choose with torch.cuda.set_device",
            stacklevel=2,
        )
