"""Farandole for Keras 3 on PyTorch: what Horovod's users know as horovod.keras.

import farandole_torch.keras as hvd  # under KERAS_BACKEND=torch

hvd.init()
model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)
model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

Which back end Keras uses is settled when it is first imported.
"""

import farandole
from farandole import *  # noqa: F403

try:
    import keras
except ImportError as error:  # also of the framework that Keras would use
    mend = (
        "install Keras 3: python -m pip install 'keras>=3'"
        if error.name == "keras"
        else "Keras looks for another framework than PyTorch: set the environment variable KERAS_BACKEND=torch before "
        "the program starts"
    )
    raise ImportError(f"farandole_torch.keras cannot import Keras ({error}); {mend}") from error

if keras.backend.backend() != "torch":
    raise ImportError(
        f"farandole_torch.keras is for Keras on PyTorch, and Keras uses {keras.backend.backend()}: set the environment "
        "variable KERAS_BACKEND=torch before the program starts"
    )

from farandole_torch._gpus import init
from farandole_torch.keras import callbacks
from farandole_torch.keras._models import load_model
from farandole_torch.keras._optimizer import DistributedOptimizer, PartialDistributedOptimizer
from farandole_torch.keras._values import allgather, allreduce, broadcast, reducescatter
from farandole_torch.mpi_ops import Compression

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allreduce",
    "broadcast",
    "callbacks",
    "init",
    "load_model",
    "reducescatter",
]
__all__ += [name for name in farandole.__all__ if name not in __all__]
