"""The estimator of PyTorch, from farandole_spark.ml.torch."""

from horovod.spark.torch.estimator import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
