"""Farandole for PyTorch, with the interface of horovod.torch.

    import farandole_torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

Tensors may be strided, and may be on a GPU. `farandole.plugin.Collectives` documents the operations.
"""

from farandole.plugin import version_of as _version_of

__version__ = _version_of("farandole-torch")  # raises an error for a core of another version, before an import fails

# isort: split
from farandole import *  # noqa: F403  # mypy does not see what `mpi_ops.__all__` has of these

from farandole_torch import (  # noqa: F401  # _versions raises for versions of PyTorch that the rest cannot use
    _torchrun,  # lets ranks exchange the key through torchrun's store
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

__version__ = _version_of("farandole-torch")  # again, because `import *` has brought the core's version

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
    _hide_from_dynamo(globals()[_name])  # so that torch.compile does not trace them
