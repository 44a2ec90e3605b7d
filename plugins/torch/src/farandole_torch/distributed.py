"""torch.distributed on Farandole: the backend "farandole", for tensors on the host and on GPUs.

    import torch.distributed as dist

    dist.init_process_group("farandole")
    model = torch.nn.parallel.DistributedDataParallel(model)

Started by `farandole run`, by torchrun, or by the program itself, which then gives `init_process_group` rank and size.
With `init_method="farandole://"` farandole says where the ranks meet, so that no port is named. Where PyTorch does not
look for entry points (TORCH_DEVICE_BACKEND_AUTOLOAD=0), `import farandole_torch.distributed` comes first.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import farandole
import farandole_torch_autoload
import torch.distributed as dist
from farandole import ArgumentError, ProcessSet
from farandole.plugin import register_plugin
from farandole.plugin.distributed import GIVEN, add_own_process_set, init_as
from torch.distributed.constants import default_pg_timeout

from farandole_torch._process_group import ProcessGroup
from farandole_torch._retired_sets import retired_sets
from farandole_torch._store import open_store
from farandole_torch._torchrun import through_store
from farandole_torch._versions import require

__all__ = ["monitored_barrier"]

_ATTEMPTS, _ATTEMPT_S = 10, 0.3  # to make a process set

# With earlier ones DistributedDataParallel waits for ever for a group that is written in Python.
require("farandole_torch.distributed", (2, 7))


def create(options: Any, _: Any) -> ProcessGroup:
    """One group, on those of its ranks that are in it."""
    begins = not farandole.is_initialized()
    if not options.global_ranks_in_group:
        init_as(options.group_rank, options.group_size, partial(through_store, options.store, GIVEN))
    farandole.init()
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    if options.group_size > farandole.size():
        raise ValueError(
            f"torch.distributed has {options.group_size} ranks and farandole, which was initialized before, has "
            f"{farandole.size()}: call init_process_group before farandole_torch.init(), or start the ranks with "
            "`farandole run`"
        )
    if ranks[options.group_rank] != farandole.rank():
        raise ValueError(
            f"rank {ranks[options.group_rank]} of torch.distributed is rank {farandole.rank()} of farandole: start "
            "both with the same launcher, and leave out rank= and world_size="
        )
    process_set = _set_of(ranks, options.group_id) if options.global_ranks_in_group else None
    group = ProcessGroup(options.group_rank, ranks, process_set, options.store)
    # By default, FARANDOLE_TIMEOUT is the limit.
    group.set_timeout(timedelta(0) if options.timeout == default_pg_timeout else options.timeout)
    if process_set is not None:
        group.when_shut_down(
            partial(retired_sets.add, process_set, options.store, options.group_rank, options.group_size)
        )
    if begins:
        group.when_shut_down(farandole.shutdown)
    return group


def _set_of(ranks: list[int], name: str) -> ProcessSet | None:
    """A set of the group's own, since other threads may use other groups of the same ranks."""
    for attempt in range(_ATTEMPTS):  # as many on all of these ranks
        try:
            return add_own_process_set(sorted(ranks), f"{name} {ranks} {attempt}")
        except ArgumentError as error:  # all are in use; those of destroyed groups become free
            failure = error
            time.sleep(_ATTEMPT_S)
    if len(ranks) < farandole.size():
        raise failure
    warnings.warn(
        "this group of torch.distributed shares the order of its operations with the first group, so call both from "
        f"one thread: {failure}",
        stacklevel=2,
    )
    return None


def monitored_barrier(
    group: Any = None, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
) -> None:
    """Block until all ranks of the group have called: `dist.monitored_barrier`, which PyTorch keeps for Gloo's groups.

    Args:
        group: by default all ranks.
        timeout: how long rank 0 waits for the others, seconds or a timedelta; by default the group's.
        wait_all_ranks: name all ranks that have not come, not only the first.

    Raises:
        DeadlineError: a rank has not come in time. On rank 0 of the group the message names it. The group can still be
            used.

    Example:
        >>> from farandole_torch.distributed import monitored_barrier
        >>> dist.monitored_barrier = monitored_barrier  # for a program that calls that
    """
    group = dist.group.WORLD if group is None else group
    if isinstance(timeout, int | float):
        timeout = timedelta(seconds=timeout)
    if dist.get_rank(group) >= 0:
        group.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)


def rendezvous(url: str, *_: Any, **__: Any) -> Iterator[tuple[Any, int, int]]:
    """A store that rank 0 keeps for the ranks of this job."""
    farandole.init()
    yield open_store(), farandole.rank(), farandole.size()


farandole_torch_autoload.register()
register_plugin(farandole_torch_autoload.__name__)  # through which torch.distributed calls us
