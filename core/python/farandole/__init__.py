"""Farandole: distributed deep-learning training. One core does the collectives; frameworks plug into it.

Users of a framework import its plugin (`import farandole_torch as hvd`), which has all of these names too.
`farandole.numpy` has the collectives for arrays, `farandole.plugin` the contract of plugins.
"""

from farandole._errors import (
    DeadlineError,
    FarandoleError,
    MismatchError,
    NotInitializedError,
    PeerLostError,
    RecoverableError,
)
from farandole._handles import Handle, poll, synchronize
from farandole._objects import allgather_object, barrier, broadcast_object
from farandole._ops import Average, Max, Min, Product, ReduceOp, Sum
from farandole._world import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)

__version__ = "0.1.0"

__all__ = [
    "Average",
    "DeadlineError",
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
    "allgather_object",
    "barrier",
    "broadcast_object",
    "cross_rank",
    "cross_size",
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
