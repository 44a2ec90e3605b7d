"""`transform` of a model: predictions as new columns, made in Spark's tasks.

The model travels as bytes in the closure of a function of pandas, which Spark calls with the feature columns alone, so
that all other columns of the DataFrame stay as they are, whatever their types.
"""  # without `annotations` of the future: Spark reads those of `predict`

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import farandole
import numpy as np
from farandole.engine import unpack_call

from farandole_spark.ml._columns import SCALAR, Column

_ROWS = 1024  # of a call of the model
_PREDICTIONS = "_farandole_predictions"

Predict = Callable[[Sequence[Any]], Sequence[Any]]
"""Arrays of the features, (rows,) or (rows, size) -> arrays of the outputs, whose first dimension is the rows."""


def with_predictions(
    frame: Any,
    features: Sequence[str],
    labels: Sequence[Column],
    sizes: Sequence[int],
    names: Sequence[str],
    call: bytes,
) -> Any:
    """The DataFrame with a column for each label.

    Args:
        frame: has the features.
        features: columns in the order of the model's inputs.
        labels: the columns of the training that the outputs predict.
        sizes: numbers in a row of each output.
        names: the new columns.
        call: of a function that makes a `Predict`, pickled.

    Raises:
        ArgumentError: a feature is missing, or a new column is there already.
    """
    from pyspark.ml.functions import array_to_vector, vector_to_array
    from pyspark.sql import functions

    if missing := [name for name in features if name not in frame.columns]:
        raise farandole.ArgumentError(f"the DataFrame has no column {missing[0]!r}, which the model reads.")
    if taken := [name for name in names if name in frame.columns]:
        raise farandole.ArgumentError(f"the DataFrame has a column {taken[0]!r} already; name others: setOutputCols.")
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    given = []
    for number, name in enumerate(features):
        column = functions.col(f"`{name}`")
        if types[name] == "vector":
            column = functions.when(column.isNotNull(), vector_to_array(column))
        elif types[name].startswith("decimal"):
            column = column.cast("double")
        given.append(column.alias(f"f{number}"))
    scalars = [label.kind == SCALAR and size == 1 for label, size in zip(labels, sizes, strict=True)]
    predict = _function_of(call, features, scalars)
    found = frame.withColumn(_PREDICTIONS, predict(functions.struct(*given)))
    for number, (label, name, is_scalar) in enumerate(zip(labels, names, scalars, strict=True)):
        value = functions.col(f"{_PREDICTIONS}.p{number}")
        if not is_scalar:
            value = array_to_vector(value)
        elif label.is_integer or label.type == "boolean":
            value = functions.round(value).cast(label.type)
        else:
            value = value.cast(label.type)
        found = found.withColumn(name, value)
    return found.drop(_PREDICTIONS)


def _function_of(call: bytes, names: Sequence[str], scalars: Sequence[bool]) -> Any:
    """The function of pandas that Spark calls in its tasks."""
    import pandas
    from pyspark.sql.functions import pandas_udf

    fields = ", ".join(f"p{number}:{'double' if each else 'array<double>'}" for number, each in enumerate(scalars))

    def predict(batches: Iterator[pandas.DataFrame]) -> Iterator[pandas.DataFrame]:
        make, args, kwargs = unpack_call(call)
        model: Predict = make(*args, **kwargs)
        for batch in batches:
            parts = [
                model(
                    [
                        _array(batch[column].iloc[start : start + _ROWS], name)
                        for column, name in zip(batch, names, strict=True)
                    ]
                )
                for start in range(0, len(batch), _ROWS)
            ]
            yield pandas.DataFrame(_columns(parts, scalars), index=batch.index)

    return pandas_udf(predict, f"struct<{fields}>")


def _array(values: Any, name: str) -> Any:
    if values.isna().any():
        raise farandole.ArgumentError(
            f"the column {name!r} has a null or NaN; fill it, or drop the row, before transform."
        )
    found = values.to_numpy()
    return np.stack(found) if found.dtype == object and len(found) else found


def _columns(parts: Sequence[Sequence[Any]], scalars: Sequence[bool]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for number, is_scalar in enumerate(scalars):
        found = [np.asarray(part[number], np.float64).reshape(len(part[number]), -1) for part in parts]
        rows = np.concatenate(found) if found else np.zeros((0, 1))
        columns[f"p{number}"] = rows[:, 0] if is_scalar else list(rows)
    return columns
