"""The parameters of all trained models, with Horovod's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.ml.param import Param, Params
from pyspark.ml.param.shared import HasOutputCols

from farandole_spark._private import UNDEFINED, set_defaults, set_params
from farandole_spark.ml._accessors import ANY, NAMES, TEXT_OR_NONE, param
from farandole_spark.ml._columns import Column

if TYPE_CHECKING:
    from typing_extensions import Self


class ModelParams(HasOutputCols, Params):  # type: ignore[misc]  # PySpark is not read
    """The parameters of a model, with facts about its training. A setter returns the model."""

    history, setHistory, getHistory = param("history", ANY, "what was measured in each epoch")
    model, setModel, getModel = param("model", ANY, "the trained model")
    feature_columns, setFeatureColumns, getFeatureColumns = param("feature_columns", NAMES, "the columns of features")
    label_columns, setLabelColumns, getLabelColumns = param("label_columns", NAMES, "the columns of labels")
    setLabelColoumns = setLabelColumns  # as Horovod spells it
    run_id, setRunId, getRunId = param("run_id", TEXT_OR_NONE, "the run that trained the model")
    _metadata = Param(UNDEFINED, "_metadata", "the columns of the training data, by name")

    def __init__(self) -> None:
        super().__init__()
        set_defaults(self, **{param.name: None for param in self.params if param.name != "outputCols"})

    def setParams(self, **values: Any) -> Self:
        """Set parameters by name. None leaves a parameter unchanged."""
        return set_params(self, **{name: value for name, value in values.items() if value is not None})

    def setOutputCols(self, value: list[str]) -> Self:
        """Set the names of the columns of predictions, one for each label, by default `<label>__output`."""
        return set_params(self, outputCols=value)

    def columns_by_name(self) -> Mapping[str, Column]:
        """Return the columns of the training data by name."""
        return self.getOrDefault(self._metadata) or {}

    def getOutputCols(self) -> list[str]:
        """Return the names of the columns of predictions."""
        if self.isDefined(self.outputCols):
            return super().getOutputCols()  # type: ignore[no-any-return]
        return [f"{name}__output" for name in self.getLabelColumns()]
