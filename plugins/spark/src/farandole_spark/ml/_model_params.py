"""The parameters of all trained models, with Horovod's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from pyspark.ml.param import Param
from pyspark.ml.param.shared import HasOutputCols

from farandole_spark._private import UNDEFINED, set_params
from farandole_spark.ml._accessors import ANY, NAMES, TEXT_OR_NONE, Parameters, param
from farandole_spark.ml._columns import Column

if TYPE_CHECKING:
    from typing_extensions import Self


class ModelArguments(TypedDict, total=False):
    """The keyword arguments of all models; `ModelParams` says what they mean."""

    history: Any
    model: Any
    feature_columns: Sequence[str] | None
    label_columns: Sequence[str] | None
    run_id: str | None
    _metadata: Mapping[str, Column] | None


class ModelParams(HasOutputCols, Parameters):  # type: ignore[misc]  # PySpark is not read
    """The parameters of a model, with facts about its training. A setter returns the model."""

    history, setHistory, getHistory = param("history", ANY, "what was measured in each epoch")
    model, setModel, getModel = param("model", ANY, "the trained model")
    feature_columns, setFeatureColumns, getFeatureColumns = param("feature_columns", NAMES, "the columns of features")
    label_columns, setLabelColumns, getLabelColumns = param("label_columns", NAMES, "the columns of labels")
    setLabelColoumns = setLabelColumns  # as Horovod spells it
    run_id, setRunId, getRunId = param("run_id", TEXT_OR_NONE, "the run that trained the model")
    _metadata = Param(UNDEFINED, "_metadata", "the columns of the training data, by name")

    def setOutputCols(self, value: list[str]) -> Self:
        """Set the names of the columns of predictions, one for each label, by default `<label>__output`."""
        return set_params(self, outputCols=value)

    def columns_by_name(self) -> Mapping[str, Column]:
        """Return the columns of the training data by name."""
        return self.getOrDefault(self._metadata) or {}

    def getOutputCols(self) -> list[str]:
        """The names of the columns of predictions."""
        return self.getOrDefault("outputCols") or [f"{name}__output" for name in self.getLabelColumns()]
