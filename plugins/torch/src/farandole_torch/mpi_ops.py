"""The operations, of which Horovod's users import some from a module of this name. MPI has no part in it.

Those that return a new tensor are differentiable, as `_autograd` says. The forms whose names end in `_` write data,
such as a parameter's, and autograd does not see it.
"""

import farandole
from farandole import *  # noqa: F403

from farandole_torch._adapter import Compression
from farandole_torch._autograd import operations as _operations
from farandole_torch._gpus import init
from farandole_torch._sparse import sparse_allreduce_async

allgather = _operations.allgather
allgather_async = _operations.allgather_async
allreduce = _operations.allreduce
allreduce_ = _operations.allreduce_
allreduce_async = _operations.allreduce_async
allreduce_async_ = _operations.allreduce_async_
alltoall = _operations.alltoall
alltoall_async = _operations.alltoall_async
broadcast = _operations.broadcast
broadcast_ = _operations.broadcast_
broadcast_async = _operations.broadcast_async
broadcast_async_ = _operations.broadcast_async_
grouped_allgather = _operations.grouped_allgather
grouped_allgather_async = _operations.grouped_allgather_async
grouped_allreduce = _operations.grouped_allreduce
grouped_allreduce_ = _operations.grouped_allreduce_
grouped_allreduce_async = _operations.grouped_allreduce_async
grouped_allreduce_async_ = _operations.grouped_allreduce_async_
grouped_reducescatter = _operations.grouped_reducescatter
grouped_reducescatter_async = _operations.grouped_reducescatter_async
persistent_allreduce = _operations.persistent_allreduce
reducescatter = _operations.reducescatter
reducescatter_async = _operations.reducescatter_async

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
    "init",
    "persistent_allreduce",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce_async",
]
__all__ += farandole.__all__  # the form that pyright reads
__all__[:] = dict.fromkeys(__all__)  # each once
