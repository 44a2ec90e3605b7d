"""This process's place in the world as tensors: looked up when they are computed, not when the graph is made."""

from __future__ import annotations

from collections.abc import Callable

import farandole
import numpy as np
import tensorflow as tf

from farandole_tensorflow._adapter import Tensor
from farandole_tensorflow._perform import unconverted


@unconverted
def rank_op(name: str | None = None) -> Tensor:
    """`rank()` as an int32 scalar.

    Example:
        >>> int(hvd.rank_op()) == hvd.rank()
        True
    """
    return _looked_up(farandole.rank, name)


@unconverted
def local_rank_op(name: str | None = None) -> Tensor:
    """`local_rank()` as an int32 scalar.

    Example:
        >>> int(hvd.local_rank_op()) == hvd.local_rank()
        True
    """
    return _looked_up(farandole.local_rank, name)


@unconverted
def local_size_op(name: str | None = None) -> Tensor:
    """`local_size()` as an int32 scalar.

    Example:
        >>> int(hvd.local_size_op())
        2
    """
    return _looked_up(farandole.local_size, name)


@unconverted
def size_op(process_set_id: int = 0, name: str | None = None) -> Tensor:
    """The number of ranks in the set of this number, by default of all ranks, as an int32 scalar.

    Example:
        >>> int(hvd.size_op())
        2
    """
    return _looked_up(lambda: len(farandole.get_process_set_ids_and_ranks()[process_set_id]), name)


@unconverted
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Tensor:
    """1 where this process is in the set of this number, else 0, as an int32 scalar.

    Example:
        >>> int(hvd.process_set_included_op())
        1
    """
    return _looked_up(lambda: farandole.process_set_included(process_set_id), name)


def place_op(process_set_id: int) -> Tensor:
    """This rank's place in the set of this number, as an int32 scalar."""
    return _looked_up(lambda: farandole.get_process_set_ids_and_ranks()[process_set_id].index(farandole.rank()), None)


def _looked_up(function: Callable[[], int], name: str | None) -> Tensor:
    if tf.executing_eagerly():
        return tf.constant(function(), tf.int32)
    value = tf.numpy_function(lambda: np.int32(function()), [], tf.int32, name=name)
    value.set_shape(())
    return value
