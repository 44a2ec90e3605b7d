"""Copies of variables, for states of elastic training.

A tensor never changes, so a variable's value is its copy: the next update of the variable finds that it is held, and
writes into new memory.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from farandole_tensorflow._dtypes import Tensor


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


def _plain(variable: Any) -> Any:
    """TensorFlow's variable inside of Keras 3's."""
    return variable if isinstance(variable, tf.Variable) else variable.value
