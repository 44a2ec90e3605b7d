"""Base class of the models of all frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import farandole
from farandole.engine import pack_call
from pyspark.ml import Model

from farandole_spark.ml._columns import Column
from farandole_spark.ml._model_params import ModelParams
from farandole_spark.ml._persistence import Persistent
from farandole_spark.ml._predict import Predict, PredictRow, with_predictions


class TrainedModel(Model, ModelParams, Persistent):  # type: ignore[misc]  # PySpark is not read
    """A transformer that adds a column of predictions for each label."""

    def output_sizes(self) -> list[int]:
        """Return how many numbers a row of each output has."""
        raise NotImplementedError

    def prediction(self) -> tuple[Callable[..., Predict], tuple[Any, ...]]:
        """Return a function that makes a `Predict` in a task of Spark, and its arguments."""
        raise NotImplementedError

    def prediction_of_rows(self) -> tuple[Callable[..., PredictRow], tuple[Any, ...]] | None:
        """Return the same for a `PredictRow`, or None if the model predicts many rows at a time."""
        return None

    def _transform(self, dataset: Any) -> Any:
        columns = self.columns_by_name()
        labels = [columns.get(name, Column(name, "vector", "double")) for name in self.getLabelColumns()]
        names, of_rows = self.getOutputCols(), self.prediction_of_rows()
        if of_rows is None:
            sizes = self.output_sizes()
        else:
            first = dataset.head()
            sizes = [2] * len(names) if first is None else [each.size for each in of_rows[0](*of_rows[1])(first)]
        if not len(labels) == len(sizes) == len(names):
            raise farandole.ArgumentError(
                f"the model has {len(sizes)} outputs, {len(labels)} label columns and {len(names)} output columns; "
                "give as many of each."
            )
        make, args = of_rows or self.prediction()
        call = pack_call(make, args, {}, f"{type(self).__name__}.transform")
        features = None if of_rows else self.getFeatureColumns()
        return with_predictions(dataset, features, labels, sizes, names, call)
