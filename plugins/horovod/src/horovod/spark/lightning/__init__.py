"""The estimator of Lightning, from farandole_spark.ml.lightning."""

from horovod.spark.lightning.estimator import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
