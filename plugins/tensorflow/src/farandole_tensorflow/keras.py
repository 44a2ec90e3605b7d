"""Farandole for Keras on TensorFlow: what Horovod's users know as horovod.tensorflow.keras and horovod.keras.

    import farandole_tensorflow.keras as hvd

    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

For Keras 3, and for tf.keras, which is Keras 2, with TensorFlow 2.13 to 2.15. Which Keras it is, `tf.keras` says.
"""

from collections.abc import Sequence as _Sequence
from typing import Any as _Any

import farandole
import tensorflow as _tf
from farandole import *  # noqa: F403
from farandole.plugin.keras import build as _build_keras

from farandole_tensorflow import _copies, _operations, _xla
from farandole_tensorflow._adapter import Tensor as _Tensor
from farandole_tensorflow._exchange import Exchange as _Exchange
from farandole_tensorflow._operations import Compression
from farandole_tensorflow._scalars import StepScalars
from farandole_tensorflow._variables import broadcast_global_variables
from farandole_tensorflow._variables import broadcast_variables as _broadcast_variables
from farandole_tensorflow.elastic import Dataset as _Dataset
from farandole_tensorflow.elastic import run as _run


class _TensorFlow:
    """A farandole.plugin.KerasFramework."""

    compression = Compression
    operations = _operations
    exchange = _Exchange

    def broadcast(self, arrays: _Sequence[_Any], root_rank: int) -> None:
        _broadcast_variables(arrays, root_rank)

    elastic_run = staticmethod(_run)
    elastic_loader = _Dataset
    step_scalars = StepScalars
    copy, write = staticmethod(_copies.copy), staticmethod(_copies.write)
    size_bytes, memory = staticmethod(_copies.size_bytes), staticmethod(_copies.memory)
    read, fill = staticmethod(_copies.read), staticmethod(_copies.fill)

    def tensor(self, value: _Any) -> _Any:
        return value  # the operations make a tensor of it

    def result(self, given: _Any, tensor: _Tensor) -> _Any:
        """In a graph there is no value yet."""
        has_value = hasattr(tensor, "numpy") and not _tf.is_tensor(given)
        return tensor.numpy() if has_value else tensor

    def compiler(self) -> str:
        return "" if _xla.is_used() else "XLA"


_built = _build_keras(_tf.keras, _TensorFlow(), __name__)
DistributedOptimizer, PartialDistributedOptimizer, load_model, no_sync = _built.training
allgather, allreduce, broadcast, reducescatter = _built.values
callbacks, elastic = _built.callbacks, _built.elastic

__all__ = ["Compression", "broadcast_global_variables"]
__all__ += [name for name in (*_built.names, *farandole.__all__) if name not in __all__]
