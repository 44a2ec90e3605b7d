"""The operations, of which Horovod's users import some from a module of this name. MPI has no part in it.

The forms whose names end in `_` write data, such as a parameter's, and autograd does not see it.
"""

import farandole
from farandole import *  # noqa: F403

from farandole_torch._autograd import collectives
from farandole_torch._operations import (
    Compression,
    allgather,
    allgather_async,
    allreduce,
    allreduce_async,
    alltoall,
    alltoall_async,
    broadcast,
    broadcast_async,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_async,
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from farandole_torch._sparse import sparse_allreduce_async

allreduce_ = collectives.allreduce_
allreduce_async_ = collectives.allreduce_async_
broadcast_ = collectives.broadcast_
broadcast_async_ = collectives.broadcast_async_
grouped_allreduce_ = collectives.grouped_allreduce_
grouped_allreduce_async_ = collectives.grouped_allreduce_async_

__all__ = [
    "Compression",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce_async",
]
__all__ += farandole.__all__
