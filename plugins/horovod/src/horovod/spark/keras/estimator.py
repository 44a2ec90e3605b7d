"""The estimator of Keras, from farandole_spark.ml.keras."""

from farandole_spark.ml.keras import KerasEstimator, KerasModel
