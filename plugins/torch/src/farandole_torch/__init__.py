"""Farandole for PyTorch: what Horovod's users know as horovod.torch.

    import farandole_torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

Tensors may be strided, and may be on a GPU. `farandole.plugin.Collectives` says what all operations have in common.
"""

from farandole.plugin import version_of as _version_of

__version__ = _version_of("farandole-torch")  # refuses a core that does not fit, before anything is missing in it

# isort: split
from farandole import *  # noqa: F403  # mypy does not see what `mpi_ops.__all__` has of these

from farandole_torch import (  # noqa: F401  # the former refuses versions that the rest cannot use
    _torchrun,  # makes torchrun's channel known
    _versions,
    elastic,
    mpi_ops,
)
from farandole_torch._adapter import collectives as _collectives
from farandole_torch._broadcasting import broadcast_optimizer_state
from farandole_torch._normalization import SyncBatchNorm
from farandole_torch._optimizer import DistributedOptimizer, no_sync
from farandole_torch._private import hide_from_dynamo as _hide_from_dynamo
from farandole_torch.mpi_ops import *  # noqa: F403

broadcast_parameters = _collectives.broadcast_parameters

__version__ = _version_of("farandole-torch")  # again: `import *` has brought that of the core

__all__ = [
    "DistributedOptimizer",
    "SyncBatchNorm",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "elastic",
    "mpi_ops",
    "no_sync",
]
__all__ += mpi_ops.__all__

for _name in __all__:
    _hide_from_dynamo(globals()[_name])  # a compiled function leaves them to Python
