"""Farandole for PyTorch: what Horovod's users know as horovod.torch.

    import farandole_torch as hvd

    hvd.init()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

Tensors may be strided, and may be on a GPU. `farandole.plugin.Collectives` says what all operations have in common.
"""

from farandole import (
    Average,
    DeadlineError,
    FarandoleError,
    Handle,
    Max,
    Min,
    MismatchError,
    NotInitializedError,
    PeerLostError,
    Product,
    RecoverableError,
    ReduceOp,
    Sum,
    allgather_object,
    barrier,
    broadcast_object,
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    poll,
    rank,
    shutdown,
    size,
    synchronize,
)

from farandole_torch._broadcasting import broadcast_optimizer_state
from farandole_torch._operations import (
    Compression,
    allgather,
    allreduce,
    broadcast,
    collectives,
    grouped_allgather,
    grouped_allreduce,
)
from farandole_torch._optimizer import DistributedOptimizer

allgather_async = collectives.allgather_async
allreduce_ = collectives.allreduce_
allreduce_async = collectives.allreduce_async
allreduce_async_ = collectives.allreduce_async_
broadcast_ = collectives.broadcast_
broadcast_async = collectives.broadcast_async
broadcast_async_ = collectives.broadcast_async_
broadcast_parameters = collectives.broadcast_parameters
grouped_allgather_async = collectives.grouped_allgather_async
grouped_allreduce_ = collectives.grouped_allreduce_
grouped_allreduce_async = collectives.grouped_allreduce_async
grouped_allreduce_async_ = collectives.grouped_allreduce_async_

__version__ = "0.1.0"

__all__ = [
    "Average",
    "Compression",
    "DeadlineError",
    "DistributedOptimizer",
    "FarandoleError",
    "Handle",
    "Max",
    "Min",
    "MismatchError",
    "NotInitializedError",
    "PeerLostError",
    "Product",
    "RecoverableError",
    "ReduceOp",
    "Sum",
    "__version__",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "cross_rank",
    "cross_size",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "poll",
    "rank",
    "shutdown",
    "size",
    "synchronize",
]
