"""A Farandole plugin: the operations for one framework's tensors. Copy, rename, replace (see README.md)."""

import farandole
from farandole import *  # noqa: F403
from farandole.plugin import Collectives

from farandole_template._adapter import Tensor, TensorAdapter

_collectives: Collectives[Tensor] = Collectives(TensorAdapter())

Compression = _collectives.Compression
allgather = _collectives.allgather
allgather_async = _collectives.allgather_async
allreduce = _collectives.allreduce
allreduce_ = _collectives.allreduce_
allreduce_async = _collectives.allreduce_async
allreduce_async_ = _collectives.allreduce_async_
alltoall = _collectives.alltoall
alltoall_async = _collectives.alltoall_async
broadcast = _collectives.broadcast
broadcast_ = _collectives.broadcast_
broadcast_async = _collectives.broadcast_async
broadcast_async_ = _collectives.broadcast_async_
broadcast_parameters = _collectives.broadcast_parameters
grouped_allgather = _collectives.grouped_allgather
grouped_allgather_async = _collectives.grouped_allgather_async
grouped_allreduce = _collectives.grouped_allreduce
grouped_allreduce_ = _collectives.grouped_allreduce_
grouped_allreduce_async = _collectives.grouped_allreduce_async
grouped_allreduce_async_ = _collectives.grouped_allreduce_async_
grouped_reducescatter = _collectives.grouped_reducescatter
grouped_reducescatter_async = _collectives.grouped_reducescatter_async
persistent_allreduce = _collectives.persistent_allreduce
reducescatter = _collectives.reducescatter
reducescatter_async = _collectives.reducescatter_async
sparse_allreduce = _collectives.sparse_allreduce
sparse_allreduce_async = _collectives.sparse_allreduce_async

__version__ = "0.1.0"

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
    "broadcast_parameters",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "persistent_allreduce",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce",
    "sparse_allreduce_async",
]
__all__ += farandole.__all__
