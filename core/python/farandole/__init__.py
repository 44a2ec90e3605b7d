"""Distributed deep-learning training: one core of collectives, and a plugin for each framework.

Users of a framework import its plugin (`import farandole_torch as hvd`), which also has all names of this module.
`farandole.numpy` has the collectives for arrays, and `farandole.plugin` the interface for plugins.
"""

import sys as _sys
import typing as _typing

if _sys.version_info < (3, 10):  # noqa: UP036  # before imports that an older Python cannot parse
    raise ImportError(
        f"Farandole needs Python 3.10 or newer, and this is {_sys.version.split()[0]}: with a newer one, "
        "python -m pip install farandole"
    )

# isort: split
from farandole._api.builds import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from farandole._api.checkpoints import load_checkpoint, save_checkpoint
from farandole._api.errors import (
    ArgumentError,
    ArgumentTypeError,
    DeadlineError,
    FarandoleError,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    MembershipError,
    MismatchError,
    NotInitializedError,
    PeerLostError,
    RecoverableError,
)
from farandole._api.handles import Handle
from farandole._api.metrics import average_metrics
from farandole._api.objects import allgather_object, barrier, broadcast_object, join
from farandole._api.ops import Adasum, Average, Max, Min, Product, ReduceOp, Sum
from farandole._api.process_sets import (
    ProcessSet,
    add_process_set,
    get_process_set_ids_and_ranks,
    global_process_set,
    process_set_included,
    remove_process_set,
)
from farandole._api.waiting import poll, synchronize
from farandole._functions.call import run
from farandole._runtime.timeline import start_timeline, stop_timeline
from farandole._start.ending import at_import as _at_import
from farandole._start.world import (
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
from farandole._training.scalars import StepScalars

__version__ = "0.1.0"
_at_import()

__all__ = [
    "Adasum",
    "ArgumentError",
    "ArgumentTypeError",
    "Average",
    "DeadlineError",
    "FarandoleError",
    "Handle",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "Max",
    "MembershipError",
    "Min",
    "MismatchError",
    "NotInitializedError",
    "PeerLostError",
    "ProcessSet",
    "Product",
    "RecoverableError",
    "ReduceOp",
    "StepScalars",
    "Sum",
    "__version__",
    "add_process_set",
    "allgather_object",
    "average_metrics",
    "barrier",
    "broadcast_object",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "get_process_set_ids_and_ranks",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load_checkpoint",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "process_set_included",
    "rank",
    "remove_process_set",
    "rocm_built",
    "run",
    "save_checkpoint",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]

if not _typing.TYPE_CHECKING:  # a type checker would accept every name

    def __getattr__(name: str) -> object:
        """Raise an AttributeError that names the module with the collectives, since users look for them here."""
        raise AttributeError(
            f"module 'farandole' has no attribute {name!r}; collectives and optimizers are in the module of your "
            "framework: import farandole_torch, farandole_tensorflow, farandole_mxnet or, for arrays, farandole.numpy",
            name=name,
            obj=_sys.modules[__name__],
        )
