"""Farandole for PyTorch: what Horovod's users know as horovod.torch.

    import farandole_torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

Tensors may be strided, and may be on a GPU. `farandole.plugin.Collectives` says what all operations have in common.
"""

import farandole
from farandole import *  # noqa: F403

from farandole_torch._broadcasting import broadcast_optimizer_state
from farandole_torch._operations import (
    Compression,
    allgather,
    allreduce,
    broadcast,
    collectives,
    grouped_allgather,
    grouped_allreduce,
    without_gradient,
)
from farandole_torch._optimizer import DistributedOptimizer
from farandole_torch._sparse import sparse_allreduce_async

allgather_async = without_gradient(collectives.allgather_async)
allreduce_ = collectives.allreduce_
allreduce_async = without_gradient(collectives.allreduce_async)
allreduce_async_ = collectives.allreduce_async_
alltoall = without_gradient(collectives.alltoall)
alltoall_async = without_gradient(collectives.alltoall_async)
broadcast_ = collectives.broadcast_
broadcast_async = without_gradient(collectives.broadcast_async)
broadcast_async_ = collectives.broadcast_async_
broadcast_parameters = collectives.broadcast_parameters
grouped_allgather_async = without_gradient(collectives.grouped_allgather_async)
grouped_allreduce_ = collectives.grouped_allreduce_
grouped_allreduce_async = without_gradient(collectives.grouped_allreduce_async)
grouped_allreduce_async_ = collectives.grouped_allreduce_async_
grouped_reducescatter = without_gradient(collectives.grouped_reducescatter)
grouped_reducescatter_async = without_gradient(collectives.grouped_reducescatter_async)
reducescatter = without_gradient(collectives.reducescatter)
reducescatter_async = without_gradient(collectives.reducescatter_async)

__version__ = "0.1.0"

__all__ = [
    "Compression",
    "DistributedOptimizer",
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
    "broadcast_optimizer_state",
    "broadcast_parameters",
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
