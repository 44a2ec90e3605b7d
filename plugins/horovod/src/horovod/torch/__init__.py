"""The names of Horovod's module, from farandole_torch."""

from horovod._environment import needing as _needing

with _needing("farandole-torch"):
    from farandole_torch import *  # noqa: F403

from horovod._later import attribute_error as _attribute_error
from horovod.torch import (  # type: ignore[no-redef, unused-ignore]  # Python takes the later mpi_ops
    compression,
    elastic,
    functions,
    mpi_ops,
    optimizer,
    sync_batch_norm,
)
from horovod.torch.mpi_ops import init
from horovod.torch.optimizer import DistributedOptimizer


def __getattr__(name: str) -> object:
    raise _attribute_error(__name__, name)
