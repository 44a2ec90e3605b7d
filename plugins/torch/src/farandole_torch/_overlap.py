"""When gradients travel: while backward computes others, or all when it is over."""

from __future__ import annotations

import os
from collections.abc import Iterable

import farandole
import torch

from farandole_torch._owners import Parameter


def pays(parameters: Iterable[Parameter]) -> bool:
    """Returns whether a step takes less time with gradients that travel while backward runs.

    It does where somebody else computes or waits meanwhile: a GPU, the network, or a core without a rank's thread.
    Where each core runs a thread of a rank, sums between the ranks of a host only take it from backward, and the caches
    with it: with 25 million parameters, two ranks and two cores a step took 14 ms more than its computation if they
    came at the end, and 30 ms more if they came between.
    """
    if farandole.local_size() < farandole.size() or any(not each.is_cpu for each in parameters):
        return True
    threads: int = torch.get_num_threads()
    return farandole.local_size() * threads < len(os.sched_getaffinity(0))
