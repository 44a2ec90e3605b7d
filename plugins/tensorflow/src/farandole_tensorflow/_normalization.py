"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from farandole import Sum, size

from farandole_tensorflow._operations import allreduce


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]  # TensorFlow is not read
    """`keras.layers.BatchNormalization` whose mean and variance in training are those of all ranks' batches together.

    The batches may differ in size, but no rank's may be empty.
    """

    def __init__(self, fused: bool | None = False, **options: Any) -> None:
        """As in Keras.

        Raises:
            ValueError: `fused=True`, which has no place for the other ranks.
        """
        if fused:
            raise ValueError("SyncBatchNormalization has no fused form: leave out fused=True")
        if _has_fused():
            options["fused"] = False
        super().__init__(**options)

    def _moments(self, inputs: Any, *axes: Any, **options: Any) -> Any:
        """Mean and variance; all versions of Keras compute them here."""
        mean, variance = super()._moments(inputs, *axes, **options)
        if size() == 1:
            return mean, variance
        mask = options.get("mask", axes[-1] if axes else None)
        count = tf.cast(_count(inputs, mask, mean), tf.float32)
        mean32, variance32 = tf.cast(mean, tf.float32), tf.cast(variance, tf.float32)
        parts = [mean32 * count, (variance32 + tf.square(mean32)) * count, tf.ones_like(mean32) * count]
        total, squares, counts = tf.unstack(allreduce(tf.stack(parts), op=Sum, name="moments"))
        all_mean = total / counts
        all_variance = tf.maximum(squares / counts - tf.square(all_mean), 0.0)
        return tf.cast(all_mean, mean.dtype), tf.cast(all_variance, variance.dtype)

    def get_config(self) -> dict[str, Any]:
        """As in Keras."""
        config: dict[str, Any] = super().get_config()
        config.pop("fused", None)
        return config


def _has_fused() -> bool:
    """Whether this Keras computes it in one operation of TensorFlow unless told otherwise."""
    return hasattr(tf.keras.layers.BatchNormalization, "_fused_can_be_used")


def _count(inputs: Any, mask: Any, mean: Any) -> Any:
    """How many values each mean is of."""
    if mask is not None and tf.is_tensor(mask):
        return tf.math.count_nonzero(mask)
    return tf.size(inputs) // tf.size(mean)
