"""The channel through which ranks find each other that torchrun, or a program itself, has started: torch's store.

It has no authentication, so the job's key is as secret as the network, unless FARANDOLE_KEY_FILE names one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist
from farandole import DeadlineError
from farandole.plugin.distributed import TORCHRUN, Exchange, register_exchange


def _through_rendezvous(rank: int, size: int, timeout_s: float) -> Exchange:
    store, *_ = next(dist.rendezvous("env://", rank, size, timeout=timedelta(seconds=timeout_s)))
    return through_store(store, TORCHRUN, rank, size, timeout_s)


def through_store(store: Any, starter: str, rank: int, size: int, timeout_s: float) -> Exchange:
    """Each rank sets its word under its number, and reads those of the others."""

    def exchange(mine: bytes) -> list[bytes]:
        made = store.add(f"farandole/made/{rank}", 1)  # exchanges through this store: as many by all ranks
        words: Any = dist.PrefixStore(f"farandole/{made}", store)
        words.set(str(rank), mine)
        try:
            words.wait([str(other) for other in range(size)], timedelta(seconds=timeout_s))
        except dist.DistStoreError as error:
            raise DeadlineError(
                f"rank {rank} waited {timeout_s:g} s in init() for all {size} ranks of {starter}: look for the output "
                "of those that did not come. FARANDOLE_START_TIMEOUT is how long init waits"
            ) from error
        return [bytes(words.get(str(other))) for other in range(size)]

    return exchange


register_exchange(TORCHRUN, _through_rendezvous)
