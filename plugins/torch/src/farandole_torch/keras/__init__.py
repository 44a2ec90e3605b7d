"""Farandole for Keras 3 on PyTorch: what Horovod's users know as horovod.keras.

    import farandole_torch.keras as hvd  # under KERAS_BACKEND=torch

    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

Which backend Keras uses is settled when it is first imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import farandole
from farandole import *  # noqa: F403
from farandole.plugin.keras import Training as _Training
from farandole.plugin.keras import Values as _Values

from farandole_torch._adapter import Compression
from farandole_torch._adapter import Tensor as _Tensor
from farandole_torch._gpus import init
from farandole_torch._keras import FRAMEWORK as _FRAMEWORK
from farandole_torch.keras import callbacks, elastic

if TYPE_CHECKING:
    from keras import Model as _Model

_training: _Training[_Tensor, _Model] = _Training(_FRAMEWORK, __name__)
_values: _Values[_Tensor] = _Values(_FRAMEWORK, __name__)
DistributedOptimizer = _training.DistributedOptimizer
PartialDistributedOptimizer = _training.PartialDistributedOptimizer
"""`DistributedOptimizer` that also takes `local_layers`: layers whose gradients stay with each rank."""
load_model = _training.load_model
no_sync = _training.no_sync
allgather = _values.allgather
allreduce = _values.allreduce
broadcast = _values.broadcast
reducescatter = _values.reducescatter

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allreduce",
    "broadcast",
    "callbacks",
    "elastic",
    "init",
    "load_model",
    "no_sync",
    "reducescatter",
]
__all__ += farandole.__all__  # the form that pyright reads
__all__[:] = dict.fromkeys(__all__)  # each once
