"""Copies of variables, for states of elastic training.

A tensor never changes, so a variable's value is its copy: the next update of the variable finds that it is held, and
writes into new memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from farandole_tensorflow._adapter import Tensor


def copy(array: Any, spare: Any) -> Tensor:
    """The variable's value; of Keras 3's, too. `spare` is not needed."""
    return _plain(array).read_value()


def write(array: Any, copied: Tensor) -> bool:
    """Give the variable this value; False where the shape or the dtype is another one."""
    plain = _plain(array)
    if plain.shape != copied.shape or plain.dtype != copied.dtype:
        return False
    plain.assign(copied)
    return True


def size_bytes(array: Any) -> int:
    """The size of the variable's value."""
    plain = _plain(array)
    return int(plain.shape.num_elements()) * int(plain.dtype.size)


def memory(array: Any) -> None:
    """A tensor never changes, so there is none to write to."""
    return None


def read(array: Any) -> memoryview:
    """The bytes of the variable's value, flat."""
    return np.ascontiguousarray(_plain(array).read_value().numpy()).reshape(-1).view(np.uint8).data


def fill(array: Any, content: memoryview) -> None:
    """Give the variable the value that another rank has read."""
    plain = _plain(array)
    plain.assign(np.frombuffer(content, plain.dtype.as_numpy_dtype).reshape(plain.shape))


def _plain(variable: Any) -> Any:
    """TensorFlow's variable inside of Keras 3's."""
    return variable if isinstance(variable, tf.Variable) else variable.value
