"""Farandole for Keras on TensorFlow: what Horovod's users know as horovod.tensorflow.keras and horovod.keras.

    import farandole_tensorflow.keras as hvd

    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

For Keras 3, and for tf.keras, which is Keras 2, with TensorFlow 2.13 to 2.15. Which Keras it is, `tf.keras` says.
"""

from __future__ import annotations

from typing import Any as _Any

import farandole
import tensorflow as _tf
from farandole import *  # noqa: F403
from farandole.plugin.keras import Training as _Training
from farandole.plugin.keras import Values as _Values

from farandole_tensorflow._adapter import Tensor as _Tensor
from farandole_tensorflow._keras import FRAMEWORK as _FRAMEWORK
from farandole_tensorflow._operations import Compression
from farandole_tensorflow._variables import broadcast_global_variables
from farandole_tensorflow.keras import callbacks, elastic

_training: _Training[_Tensor, _tf.keras.Model[_Any, _Any]] = _Training(_FRAMEWORK, __name__)
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
    "broadcast_global_variables",
    "callbacks",
    "elastic",
    "load_model",
    "no_sync",
    "reducescatter",
]
__all__ += farandole.__all__  # the form that pyright reads
__all__[:] = dict.fromkeys(__all__)  # each once
