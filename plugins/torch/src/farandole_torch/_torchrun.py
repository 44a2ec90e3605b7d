"""The channel through which ranks that torchrun has started on several hosts find each other: torch's store.

It has no authentication, so the job's key is as secret as the network, unless FARANDOLE_KEY_FILE names one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist
from farandole import DeadlineError
from farandole.plugin.distributed import TORCHRUN, Exchange, register_exchange

_made = 0  # exchanges of this process: as many on all ranks


def _through_store(rank: int, size: int, timeout_s: float) -> Exchange:
    """Each rank sets its word under its number, and reads those of the others."""
    store, *_ = next(dist.rendezvous("env://", rank, size, timeout=timedelta(seconds=timeout_s)))

    def exchange(mine: bytes) -> list[bytes]:
        global _made
        _made += 1
        words: Any = dist.PrefixStore(f"farandole/{_made}", store)
        words.set(str(rank), mine)
        try:
            return [bytes(words.get(str(other))) for other in range(size)]
        except dist.DistStoreError as error:
            raise DeadlineError(
                f"rank {rank} waited {timeout_s:g} s in init() for all {size} ranks of torchrun: look for the output "
                "of those that did not come. FARANDOLE_START_TIMEOUT is how long init waits"
            ) from error

    return exchange


register_exchange(TORCHRUN, _through_store)
