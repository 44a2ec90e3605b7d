"""The estimator of Keras, from farandole_spark.ml.keras."""

from horovod.spark.keras.estimator import KerasEstimator, KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
