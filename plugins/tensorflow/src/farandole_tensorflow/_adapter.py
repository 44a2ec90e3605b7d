"""TensorFlow's tensors as the core's operations see them."""

from __future__ import annotations

from typing import Any, TypeAlias

import tensorflow as tf
from farandole import ArgumentError, ArgumentTypeError
from farandole.plugin import DType

Tensor: TypeAlias = tf.Tensor

_NAMES = (  # the rows of csrc/types.cc
    *("uint8", "int8", "uint16", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "bool"),
    *("uint32", "uint64", "complex64", "complex128"),
)
_TF_DTYPES = {DType[name.upper()]: getattr(tf, name) for name in _NAMES}
_DTYPES = {tf_dtype: dtype for dtype, tf_dtype in _TF_DTYPES.items()}


class TensorAdapter:
    """What `BasicCollectives` asks about tensors, and about what TensorFlow makes tensors of."""

    def describe(self, tensor: Any) -> tuple[DType, Any]:
        """Element type and shape, of which parts may be None.

        Raises as `as_tensor`.
        """
        converted = as_tensor(tensor)
        return _DTYPES[converted.dtype], converted.shape

    def cast(self, tensor: Any, dtype: DType) -> Tensor:
        """The tensor with another element type."""
        return tf.cast(tensor, _TF_DTYPES[dtype])


def as_tensor(value: Any) -> Tensor:
    """A tensor that can be sent, of a tensor, a variable, or what TensorFlow makes one of.

    Raises:
        TypeError: it makes none of it.
        ValueError: an element type that cannot be reduced or sent.
    """
    if isinstance(value, tf.SparseTensor | tf.RaggedTensor):
        kind = type(value).__name__
        raise ArgumentTypeError(f"{kind}s cannot be reduced or sent; convert it with tf.sparse.to_dense or to_tensor()")
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype not in _DTYPES:
        known = ", ".join(_NAMES)
        raise ArgumentError(f"tensors of dtype {tensor.dtype.name} cannot be reduced or sent; supported are {known}")
    return tensor
