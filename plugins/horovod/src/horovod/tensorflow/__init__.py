"""The names of Horovod's module, from farandole_tensorflow."""

from horovod._environment import needing as _needing

with _needing("farandole-tensorflow"):
    from horovod.tensorflow.mpi_ops import *  # noqa: F403

from farandole_tensorflow import (  # type: ignore[assignment, unused-ignore]  # Python takes the later ones
    BroadcastGlobalVariablesHook,
    Compression,
    DistributedGradientTape,
    DistributedOptimizer,
    PartialDistributedGradientTape,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)

from horovod._later import attribute_error as _attribute_error
from horovod.tensorflow import compression, elastic, functions, mpi_ops, util
from horovod.tensorflow.util import _executing_eagerly


def __getattr__(name: str) -> object:
    """Looks up what needs Keras, whose import takes seconds."""
    if name == "SyncBatchNormalization":
        from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    raise _attribute_error(__name__, name)
