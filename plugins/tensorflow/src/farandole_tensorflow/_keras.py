"""Keras's variables on TensorFlow, as the core's functions for Keras see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from farandole_tensorflow import _copies, _operations, _xla
from farandole_tensorflow._adapter import Tensor
from farandole_tensorflow._exchange import Exchange
from farandole_tensorflow._operations import Compression
from farandole_tensorflow._scalars import StepScalars
from farandole_tensorflow._variables import broadcast_variables


class TensorFlow:
    """A farandole.plugin.keras.Framework."""

    keras, model = tf.keras, tf.keras.Model
    compression = Compression
    operations = _operations
    exchange = Exchange

    def broadcast(self, arrays: Sequence[Any], root_rank: int) -> None:
        broadcast_variables(arrays, root_rank)

    step_scalars = StepScalars
    copy, write = staticmethod(_copies.copy), staticmethod(_copies.write)
    size_bytes, memory = staticmethod(_copies.size_bytes), staticmethod(_copies.memory)
    read, fill = staticmethod(_copies.read), staticmethod(_copies.fill)

    def tensor(self, value: Any) -> Any:
        return value  # the operations make a tensor of it

    def result(self, given: Any, tensor: Tensor) -> Any:
        """In a graph there is no value yet."""
        has_value = hasattr(tensor, "numpy") and not tf.is_tensor(given)
        return tensor.numpy() if has_value else tensor

    def compiler(self) -> str:
        return "" if _xla.is_used() else "XLA"


FRAMEWORK = TensorFlow()
IS_KERAS_2 = getattr(tf.keras, "__version__", "2").startswith("2")  # TensorFlow's own does not say its version
RATE = "lr" if IS_KERAS_2 else "learning_rate"  # in the logs of an epoch, beside which ours would stand otherwise
