"""Farandole for MXNet: what Horovod's users know as horovod.mxnet.

    import farandole_mxnet as hvd

    hvd.init()
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    trainer = hvd.DistributedTrainer(net.collect_params(), optimizer)

Operations are pushed into MXNet's engine: they begin when their arrays are computed, and whoever reads a result waits.
Errors are raised there, as an MXNetError that is also the class of farandole.
"""

import atexit

import farandole
from farandole import *  # noqa: F403

from farandole_mxnet import _native
from farandole_mxnet._broadcasting import broadcast_parameters
from farandole_mxnet._operations import (
    Compression,
    add_process_set,
    allgather,
    allgather_object,
    allreduce,
    allreduce_,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    broadcast_object,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_reducescatter,
    join,
    reducescatter,
    remove_process_set,
)
from farandole_mxnet._optimizer import DistributedOptimizer
from farandole_mxnet._trainer import DistributedTrainer

__version__ = "0.1.0"

_TIME_TO_END_S = 10.0


def init(comm: object = None, process_sets: object = None) -> None:
    """As `farandole.init`."""
    farandole.init(comm, process_sets)
    atexit.unregister(shutdown)
    atexit.register(shutdown)  # goes before the core's own


def shutdown() -> None:
    """Leave the world: operations in flight have some seconds to end and fail then, everything is released.

    Does nothing when not initialized. Every rank should call it; `init()` may follow. Called at interpreter exit.
    """
    if farandole.is_initialized():
        _native.end(_TIME_TO_END_S)
        farandole.shutdown()


__all__ = [
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_parameters",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "init",
    "join",
    "reducescatter",
    "remove_process_set",
    "shutdown",
]
__all__ += [name for name in farandole.__all__ if name not in __all__]
