"""Parameters of estimators and models, from farandole_spark.ml."""

from farandole_spark.ml.params import EstimatorParams, ModelParams
