"""The estimator of PyTorch, from farandole_spark.ml.torch."""

from farandole_spark.ml.torch import TorchEstimator, TorchModel
