"""Base classes of estimators and models, for programs that derive their own."""

from farandole_spark.ml._estimator import FrameworkEstimator as EstimatorBase
from farandole_spark.ml._model import TrainedModel as ModelBase
from farandole_spark.ml._model_params import ModelParams
from farandole_spark.ml._params import EstimatorParams

__all__ = ["EstimatorBase", "EstimatorParams", "ModelBase", "ModelParams"]
