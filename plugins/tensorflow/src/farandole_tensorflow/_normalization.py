"""Batch normalization over the batches of all ranks.

Sources: S. Ioffe, C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate
Shift", 2015; T. Chan, G. Golub, R. LeVeque, "Algorithms for Computing the Sample Variance", 1983 (moments of parts).
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from farandole import Sum, size

from farandole_tensorflow._operations import allreduce
from farandole_tensorflow._private import has_fused_normalization


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]  # TensorFlow is not read
    """`keras.layers.BatchNormalization` whose mean and variance in training are those of all ranks' batches together.

    The batches may differ in size, but no rank's may be empty. Batch normalization is by Ioffe and Szegedy, 2015.

    Example:
        >>> norm = hvd.SyncBatchNormalization(momentum=0.5)
        >>> outputs = norm(tf.constant([[2.0], [4.0]]) * hvd.rank(), training=True)  # rank 0 has 0 and 0
        >>> norm.moving_mean.numpy().tolist()  # half of the mean of 0, 0, 2 and 4
        [0.75]
    """

    def __init__(self, fused: bool | None = False, **options: Any) -> None:
        """As in Keras.

        Raises:
            ValueError: `fused=True`, which has no place for the other ranks.
        """
        if fused:
            raise ValueError("SyncBatchNormalization has no fused form: leave out fused=True")
        if has_fused_normalization():
            options["fused"] = False
        super().__init__(**options)

    def _moments(self, inputs: Any, *axes: Any, **options: Any) -> Any:
        """Mean and variance; all versions of Keras compute them here."""
        mean, variance = super()._moments(inputs, *axes, **options)
        if size() == 1:
            return mean, variance
        mask = options.get("mask", axes[-1] if axes else None)
        return _over_ranks(mean, variance, _count(inputs, mask, mean))

    def get_config(self) -> dict[str, Any]:
        """As in Keras."""
        config: dict[str, Any] = super().get_config()
        config.pop("fused", None)
        return config


def _over_ranks(mean: Any, variance: Any, count: Any) -> tuple[Any, Any]:
    """Moments of all ranks' values together, of those of each rank's `count` values.

    First the mean, then the variance around it: the difference of two large sums would have no digits left.
    """
    dtype = tf.float64 if mean.dtype == tf.float64 else tf.float32
    own_mean, own_variance, count = (tf.cast(each, dtype) for each in (mean, variance, count))
    # The mean of no values is not a number, and would make all ranks' results and gradients none.
    own_mean, own_variance = (tf.where(count > 0, each, tf.zeros_like(each)) for each in (own_mean, own_variance))
    sums = allreduce(tf.stack([own_mean * count, tf.ones_like(own_mean) * count]), op=Sum, name="moments.mean")
    counts = sums[1]
    all_mean = sums[0] / counts
    squares = (own_variance + tf.square(own_mean - all_mean)) * count
    all_variance = allreduce(squares, op=Sum, name="moments.variance") / counts
    return tf.cast(all_mean, mean.dtype), tf.cast(all_variance, variance.dtype)


def _count(inputs: Any, mask: Any, mean: Any) -> Any:
    """The number of values behind each mean."""
    if mask is not None and tf.is_tensor(mask):
        return tf.math.count_nonzero(mask)
    return tf.size(inputs) // tf.size(mean)
