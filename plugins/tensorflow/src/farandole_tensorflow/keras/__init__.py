"""Farandole for Keras on TensorFlow: what Horovod's users know as horovod.tensorflow.keras and horovod.keras.

    import farandole_tensorflow.keras as hvd

    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

For Keras 3, and for tf.keras, which is Keras 2, with TensorFlow 2.13 to 2.15. Which Keras it is, `tf.keras` says.
"""

import farandole
from farandole import *  # noqa: F403

from farandole_tensorflow._dtypes import Compression
from farandole_tensorflow._variables import broadcast_global_variables
from farandole_tensorflow.keras import callbacks
from farandole_tensorflow.keras._models import load_model
from farandole_tensorflow.keras._optimizer import DistributedOptimizer, PartialDistributedOptimizer
from farandole_tensorflow.keras._values import allgather, allreduce, broadcast, reducescatter

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "load_model",
    "reducescatter",
]
__all__ += [name for name in farandole.__all__ if name not in __all__]
