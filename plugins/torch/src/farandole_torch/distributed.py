"""torch.distributed on Farandole: the backend "farandole", for tensors on the host and on GPUs.

    import torch.distributed as dist

    dist.init_process_group("farandole")
    model = torch.nn.parallel.DistributedDataParallel(model)

Started by `farandole run`, by torchrun, or by the program itself, which then gives `init_process_group` rank and size.
With `init_method="farandole://"` farandole says where the ranks meet, so that no port is named. Where PyTorch does not
look for entry points (TORCH_DEVICE_BACKEND_AUTOLOAD=0), `import farandole_torch.distributed` comes first.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import farandole
import farandole_torch_autoload
from farandole import ArgumentError, ProcessSet
from farandole.plugin import register_plugin
from farandole.plugin.distributed import GIVEN, add_own_process_set, init_as

from farandole_torch._process_group import ProcessGroup
from farandole_torch._store import open_store
from farandole_torch._torchrun import through_store
from farandole_torch._versions import require

__all__: list[str] = []

# With earlier ones DistributedDataParallel waits for ever for a group that is written in Python.
require("farandole_torch.distributed", (2, 7))


def create(options: Any, _: Any) -> ProcessGroup:
    """One group, on those of its ranks that are in it."""
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
    if ranks != sorted(ranks):
        raise ValueError(f"the backend farandole numbers a group's ranks in ascending order, not as {ranks}")
    is_first = not options.global_ranks_in_group
    return ProcessGroup(options.group_rank, ranks, None if is_first else _set_of(ranks))


def _set_of(ranks: list[int]) -> ProcessSet | None:
    """The set of a further group: of all ranks one of its own, since other threads may use the other groups."""
    if sorted(ranks) == list(range(farandole.size())):
        try:
            return add_own_process_set(ranks)
        except ArgumentError as error:
            warnings.warn(
                "this group of torch.distributed shares the order of its operations with the first group, so call both "
                f"from one thread: {error}",
                stacklevel=2,
            )
            return None
    process_set = ProcessSet(ranks)
    if process_set.process_set_id is None:
        raise ValueError(
            f"the backend farandole knows no process set of the ranks {sorted(ranks)}: call "
            f"farandole_torch.add_process_set({sorted(ranks)}) on every rank before dist.new_group"
        )
    return process_set


def rendezvous(url: str, *_: Any, **__: Any) -> Iterator[tuple[Any, int, int]]:
    """A store that rank 0 keeps for the ranks of this job."""
    farandole.init()
    yield open_store(), farandole.rank(), farandole.size()


farandole_torch_autoload.register()
register_plugin(farandole_torch_autoload.__name__)  # through which torch.distributed calls us
