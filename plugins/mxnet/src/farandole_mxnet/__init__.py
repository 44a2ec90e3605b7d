"""Farandole for MXNet: what Horovod's users know as horovod.mxnet.

    import farandole_mxnet as hvd

    hvd.init()
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    trainer = hvd.DistributedTrainer(net.collect_params(), optimizer)

Operations are pushed into MXNet's engine: they begin when their arrays are computed, and whoever reads a result waits.
Errors are raised there, as an MXNetError that is also the class of farandole.
"""

import sys as _sys

from farandole.plugin import version_of as _version_of

__version__ = _version_of("farandole-mxnet")  # refuses a core that does not fit, before anything is missing in it

# isort: split
import farandole
from farandole import *  # noqa: F403

if _sys.version_info >= (3, 12):
    raise ImportError(
        "MXNet 1.9.1 needs a numpy before 1.24, which Python 3.12 and later do not have: make an environment with "
        "Python 3.11, and there: python -m pip install farandole-mxnet"
    )
if "tensorflow" in _sys.modules and "mxnet" not in _sys.modules:
    raise ImportError("MXNet crashes when it is loaded after TensorFlow: put `import mxnet` before `import tensorflow`")

try:
    import mxnet as _mxnet  # noqa: F401
except AttributeError as error:
    raise ImportError(
        f"MXNet cannot be imported with this numpy, it needs one before 1.24 ({error}): "
        "python -m pip install 'numpy==1.23.5'"
    ) from error

from farandole_mxnet import elastic
from farandole_mxnet._broadcasting import broadcast_parameters
from farandole_mxnet._life import init, shutdown
from farandole_mxnet._operations import (
    Compression,
    allgather,
    allreduce,
    allreduce_,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_reducescatter,
    reducescatter,
)
from farandole_mxnet._optimizer import DistributedOptimizer
from farandole_mxnet._trainer import DistributedTrainer, no_sync

__version__ = _version_of("farandole-mxnet")  # again: `import *` has brought that of the core

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "broadcast_parameters",
    "elastic",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "init",
    "no_sync",
    "reducescatter",
    "shutdown",
]
__all__ += farandole.__all__  # the form that pyright reads
__all__[:] = dict.fromkeys(__all__)  # each once
