"""Farandole for TensorFlow: what Horovod's users know as horovod.tensorflow.

    import farandole_tensorflow as hvd

    hvd.init()
    average = hvd.allreduce(tensor)

The collectives work eagerly, in `tf.function` and in the graphs of TF1, and all have gradients. Within a graph they are
begun when their inputs are computed and hold no thread while they wait for the other ranks. The same calls must be in
the graphs of all ranks.
"""

from typing import TYPE_CHECKING

from farandole.plugin import version_of as _version_of

__version__ = _version_of("farandole-tensorflow")  # refuses a core that does not fit, before anything is missing in it

# isort: split
import farandole

if TYPE_CHECKING:  # of a name that is imported twice mypy takes the first, Python the last
    from farandole_tensorflow._normalization import SyncBatchNormalization
    from farandole_tensorflow._objects import allgather_object, broadcast_object
    from farandole_tensorflow._operations import barrier, join
    from farandole_tensorflow._scalars import StepScalars
from farandole import *  # type: ignore[no-redef, assignment, unused-ignore]  # noqa: F403

try:
    import tensorflow as _tensorflow  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(
        f"farandole-tensorflow needs TensorFlow ({error}); install the package of your choice: "
        "python -m pip install tensorflow"
    ) from error

from farandole_tensorflow import _gradients as _gradients
from farandole_tensorflow import elastic
from farandole_tensorflow._objects import (
    allgather_object,
    broadcast_object,
    broadcast_object_fn,
)
from farandole_tensorflow._operations import (
    Compression,
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    reducescatter,
)
from farandole_tensorflow._optimizer import DistributedOptimizer, no_sync
from farandole_tensorflow._rank_ops import local_rank_op, local_size_op, process_set_included_op, rank_op, size_op
from farandole_tensorflow._scalars import StepScalars
from farandole_tensorflow._tape import DistributedGradientTape, PartialDistributedGradientTape
from farandole_tensorflow._variables import (
    BroadcastGlobalVariablesHook,
    broadcast_,
    broadcast_global_variables,
    broadcast_variables,
)
from farandole_tensorflow._xla import use_xla

__version__ = _version_of("farandole-tensorflow")  # again: `import *` has brought that of the core

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "PartialDistributedGradientTape",
    "StepScalars",
    "SyncBatchNormalization",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "elastic",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "local_rank_op",
    "local_size_op",
    "no_sync",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
    "use_xla",
]
__all__ += farandole.__all__  # the form that pyright reads
__all__[:] = dict.fromkeys(__all__)  # each once


if not TYPE_CHECKING:  # a type checker would accept every name

    def __getattr__(name: str) -> object:
        """Looks up names that need Keras, whose import takes seconds."""
        if name == "SyncBatchNormalization":
            from farandole_tensorflow._normalization import SyncBatchNormalization

            return SyncBatchNormalization
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
