"""The parameters of all trained models, with Horovod's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasOutputCols

from farandole_spark._private import UNDEFINED, set_defaults, set_params
from farandole_spark.ml._accessors import Getter, Setter
from farandole_spark.ml._columns import Column

if TYPE_CHECKING:
    from typing_extensions import Self


class ModelParams(HasOutputCols, Params):  # type: ignore[misc]  # PySpark is not read
    """The parameters of a model, with facts about its training. A setter returns the model."""

    history = Param(UNDEFINED, "history", "what was measured in each epoch")
    setHistory, getHistory = Setter[Any]("history"), Getter[Any]("history")
    model = Param(UNDEFINED, "model", "the trained model")
    setModel, getModel = Setter[Any]("model"), Getter[Any]("model")
    feature_columns = Param(UNDEFINED, "feature_columns", "the columns of features", TypeConverters.toListString)
    setFeatureColumns, getFeatureColumns = Setter[list[str]]("feature_columns"), Getter[list[str]]("feature_columns")
    label_columns = Param(UNDEFINED, "label_columns", "the columns of labels", TypeConverters.toListString)
    setLabelColumns, getLabelColumns = Setter[list[str]]("label_columns"), Getter[list[str]]("label_columns")
    setLabelColoumns = setLabelColumns  # as Horovod spells it
    run_id = Param(UNDEFINED, "run_id", "the run that trained the model", TypeConverters.toString)
    setRunId, getRunId = Setter[str]("run_id"), Getter[str | None]("run_id")
    _metadata = Param(UNDEFINED, "_metadata", "the columns of the training data, by name")

    def __init__(self) -> None:
        super().__init__()
        set_defaults(self, **{param.name: None for param in self.params if param.name != "outputCols"})

    def setParams(self, **values: Any) -> Self:
        """Set several parameters by their names; None leaves one as it is."""
        return set_params(self, **{name: value for name, value in values.items() if value is not None})

    def setOutputCols(self, value: list[str]) -> Self:
        """Name the columns of predictions, one for each label; by default `<label>__output`."""
        return set_params(self, outputCols=value)

    def columns_by_name(self) -> Mapping[str, Column]:
        """The columns of the training data."""
        return self.getOrDefault(self._metadata) or {}

    def output_columns(self) -> list[str]:
        """The names of the columns of predictions."""
        if self.isSet(self.outputCols):
            return self.getOutputCols()  # type: ignore[no-any-return]
        return [f"{name}__output" for name in self.getLabelColumns()]
