"""The estimator of Lightning, from farandole_spark.ml.lightning."""

from farandole_spark.ml.lightning import TorchEstimator, TorchModel
