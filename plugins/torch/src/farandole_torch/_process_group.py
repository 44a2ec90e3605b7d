"""A process group of torch.distributed whose collectives are Farandole's.

    dist.all_reduce, DistributedDataParallel, fully_shard --> ProcessGroup --> Collectives --> Work --> wait, get_future

    Group        who is in it, the order of its calls
    Reductions   all_reduce, ...
    Moves        all_gather, broadcast, ...
    Messages     send, recv

Collectives are without a name, so that the ranks' calls are matched by their order in the group, as torch.distributed
asks. Whoever waits copies the core's results to where torch wants them. Ranks, and roots, are numbers in the group.

Sums that backward itself asks for, DistributedDataParallel's, begin when it is over where overlap does not pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farandole import ProcessSet
from farandole.plugin.distributed import carried_allreduce

from farandole_torch._adapter import collectives
from farandole_torch._messages import Messages
from farandole_torch._moves import Moves
from farandole_torch._private import hide_from_dynamo, image_of_blocking_sum
from farandole_torch._reductions import BLOCKING_SUM, Reductions


class ProcessGroup(Reductions, Moves, Messages):
    """All ranks of the world, or those of a process set."""

    def __init__(self, rank: int, ranks: Sequence[int], process_set: ProcessSet | None, store: Any) -> None:
        super().__init__(rank, ranks, process_set, store)
        # Before the method of that name, which it calls: small sums on CPUs are so frequent that each frame counts.
        self._faster = carried_allreduce(
            collectives, process_set, BLOCKING_SUM, self.allreduce, image_of_blocking_sum()
        )
        self.__dict__["allreduce"] = self._faster


# Names before torch 2.13, which C++ and Python of other versions still call.
_OLDER_NAMES = {
    "_allgather_base": "all_gather_single",
    "_reduce_scatter_base": "reduce_scatter_single",
    "allgather_into_tensor_coalesced": "all_gather_single_coalesced",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_single_coalesced",
    "all_to_all_single": "alltoall_base",
}
_COLLECTIVES = """
    allreduce allreduce_coalesced reduce reduce_scatter reduce_scatter_single reduce_scatter_single_coalesced
    allgather allgather_coalesced all_gather_single all_gather_single_coalesced
    broadcast gather scatter alltoall alltoall_base barrier send recv recv_anysource
""".split()

for _name in _COLLECTIVES:
    hide_from_dynamo(getattr(ProcessGroup, _name))
for _older, _name in _OLDER_NAMES.items():
    setattr(ProcessGroup, _older, getattr(ProcessGroup, _name))
