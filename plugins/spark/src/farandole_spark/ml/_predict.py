"""Implements `transform` of a model, which adds columns of predictions in Spark's tasks.

The model is sent as bytes in the closure of a pandas function. Spark calls the function only with the feature columns,
so all other columns of the DataFrame stay as they are, whatever their types. A model that predicts row by row gets all
columns.
"""  # no `from __future__ import annotations`, because Spark reads the annotations of `predict`

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import farandole
import numpy as np
from farandole.engine import unpack_call

from farandole_spark.ml._columns import SCALAR, Column

_ROWS = 1024  # in one call of the model
_PREDICTIONS = "_farandole_predictions"

Predict = Callable[[Sequence[Any]], Sequence[Any]]
"""Arrays of the features, (rows,) or (rows, size) -> arrays of the outputs, whose first dimension is the rows."""

PredictRow = Callable[[Any], Sequence[Any]]
"""A Row of Spark -> an array for each output."""


def with_predictions(
    frame: Any,
    features: Sequence[str] | None,
    labels: Sequence[Column],
    sizes: Sequence[int],
    names: Sequence[str],
    call: bytes,
) -> Any:
    """Return the DataFrame with a column of predictions for each label. `sizes` has the numbers in each output.

    `features` are columns in the order of the model's inputs, or None to predict row by row. `call` is the pickled call
    of a function that makes a `Predict` or a `PredictRow`. Raises ArgumentError if a feature is missing, or if a new
    column already exists.
    """
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions

    if taken := [name for name in names if name in frame.columns]:
        raise farandole.ArgumentError(f"the DataFrame has a column {taken[0]!r} already; name others: setOutputCols.")
    scalars = [label.kind == SCALAR and size == 1 for label, size in zip(labels, sizes, strict=True)]
    fields = ", ".join(f"p{number}:{'double' if each else 'array<double>'}" for number, each in enumerate(scalars))
    if features is None:
        given = functions.struct(*(functions.col(f"`{name}`") for name in frame.columns))
        predict = functions.udf(_function_of_rows(call, scalars), f"struct<{fields}>", useArrow=False)
    else:
        given = functions.struct(*_features(frame, features))
        predict = functions.pandas_udf(_function_of(call, scalars), f"struct<{fields}>")
    found = frame.withColumn(_PREDICTIONS, predict(given))
    for number, (label, name, is_scalar) in enumerate(zip(labels, names, scalars, strict=True)):
        value = functions.col(f"{_PREDICTIONS}.p{number}")
        if not is_scalar:
            value = array_to_vector(functions.transform(value, _with_nan))
        elif label.is_integer or label.type == "boolean":
            value = functions.round(value).cast(label.type)
        else:
            value = _with_nan(value).cast(label.type)
        found = found.withColumn(name, value)
    return found.drop(_PREDICTIONS)


def _with_nan(value: Any) -> Any:
    """Turn nulls back into NaN: pandas returns a prediction of NaN as a null."""
    from pyspark.sql import functions

    return functions.coalesce(value, functions.lit(float("nan")))


def _features(frame: Any, names: Sequence[str]) -> Iterator[Any]:
    """Yield the columns for pandas. A null ends the job, because pandas would not distinguish it from NaN."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions

    if missing := [name for name in names if name not in frame.columns]:
        raise farandole.ArgumentError(f"the DataFrame has no column {missing[0]!r}, which the model reads.")
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    for number, name in enumerate(names):
        column = value = functions.col(f"`{name}`")
        if types[name] == "vector":
            value = vector_to_array(column)
        elif types[name].startswith("decimal"):
            value = column.cast("double")
        why = functions.lit(f"the column {name!r} has a null; fill it, or drop the row, before transform")
        given = functions.when(column.isNotNull(), value).otherwise(functions.raise_error(why))
        yield given.alias(f"f{number}")


def _function_of(call: bytes, scalars: Sequence[bool]) -> Any:
    """Return the pandas function that Spark calls in its tasks."""
    import pandas

    def predict(batches: Iterator[pandas.DataFrame]) -> Iterator[pandas.DataFrame]:
        make, args, kwargs = unpack_call(call)
        model: Predict = make(*args, **kwargs)
        for batch in batches:
            parts = [
                model([_array(batch[column].iloc[start : start + _ROWS]) for column in batch])
                for start in range(0, len(batch), _ROWS)
            ]
            yield pandas.DataFrame(_columns(parts, scalars), index=batch.index)

    return predict


def _function_of_rows(call: bytes, scalars: Sequence[bool]) -> Any:
    """Return the same for a Row of all columns."""
    made: list[PredictRow] = []

    def predict(row: Any) -> tuple[Any, ...]:
        if not made:
            make, args, kwargs = unpack_call(call)
            made.append(make(*args, **kwargs))
        outputs = (np.asarray(each, np.float64).reshape(-1).tolist() for each in made[0](row))
        return tuple(each[0] if is_scalar else each for each, is_scalar in zip(outputs, scalars, strict=True))

    return predict


def _array(values: Any) -> Any:
    found = values.to_numpy()
    return np.stack(found) if found.dtype == object and len(found) else found


def _columns(parts: Sequence[Sequence[Any]], scalars: Sequence[bool]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for number, is_scalar in enumerate(scalars):
        found = [np.asarray(part[number], np.float64).reshape(len(part[number]), -1) for part in parts]
        rows = np.concatenate(found) if found else np.zeros((0, 1))
        columns[f"p{number}"] = rows[:, 0] if is_scalar else list(rows)
    return columns
