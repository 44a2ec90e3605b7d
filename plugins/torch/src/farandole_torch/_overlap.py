"""When gradients travel: while backward computes others, or all when it is over."""

from __future__ import annotations

import os
from collections.abc import Iterable
from operator import attrgetter

import farandole
import torch

from farandole_torch._owners import Parameter


def pays(parameters: Iterable[Parameter]) -> bool:
    """Return whether a step takes less time with gradients that travel while backward runs.

    It does where somebody else computes or waits meanwhile: a GPU, the network, or a core without a rank's thread.
    Where each core runs a thread of a rank, sums between the ranks of a host only take it from backward, and its caches
    with it (docs/design/training-steps.md). The cores are those that this rank may use. Where each rank is
    bound to cores of its own, they are counted as if the ranks shared them, so idle ones may go unused.
    """
    if farandole.local_size() < farandole.size() or not all(map(attrgetter("is_cpu"), parameters)):
        return True
    threads: int = torch.get_num_threads()
    return farandole.local_size() * threads < len(os.sched_getaffinity(0))
