"""What all estimators and models derive from, from farandole_spark.ml."""

from farandole_spark.ml.params import EstimatorBase as HorovodEstimator
from farandole_spark.ml.params import ModelBase as HorovodModel
