"""The columns that a model reads, and their types in Spark. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import farandole

SCALAR, VECTOR, ARRAY = "scalar", "vector", "array"
_NUMBERS = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double")
_OTHERS = ("string", "binary")  # only for transformation functions
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class Column:
    """A column of the training data.

    `type` is Spark's name of the numbers' type, `size` is how many each row has, and `field` is the field of Parquet's
    struct that contains them.
    """

    name: str
    kind: str
    type: str
    size: int = 1
    field: str = ""

    @property
    def is_integer(self) -> bool:
        """Return whether predictions for this label are rounded."""
        return self.kind == SCALAR and self.type in _INTEGERS


def columns_of(fields: Sequence[Any], names: Sequence[str], may_be_any: bool) -> list[Column]:
    """Return the columns with these names from a DataFrame's fields. Their sizes are not known yet.

    `may_be_any` is true for a transformation function, which also takes strings and binary data. Raises ArgumentError
    if a column is missing, or has a type that no model takes.
    """
    by_name = {field.name: field.dataType for field in fields}
    if missing := [name for name in names if name not in by_name]:
        raise farandole.ArgumentError(
            f"the DataFrame has no column {missing[0]!r}; it has {', '.join(by_name)}. Check feature_cols, label_cols "
            "and sample_weight_col."
        )
    return [_column(name, by_name[name], may_be_any) for name in dict.fromkeys(names)]


def _column(name: str, kind: Any, may_be_any: bool) -> Column:
    text = kind.simpleString()
    if text.startswith("decimal"):
        return Column(name, SCALAR, "double")
    if text in _NUMBERS or (may_be_any and text in _OTHERS):
        return Column(name, SCALAR, text)
    if text == "vector":
        return Column(name, VECTOR, "double")
    element = kind.elementType.simpleString() if text.startswith("array") else ""
    if element in _NUMBERS:
        return Column(name, ARRAY, element)
    raise farandole.ArgumentError(
        f"the column {name!r} has the type {text}, which no model takes; make it a number, a vector or an array of "
        "numbers."
    )


def check_shapes(columns: Mapping[str, Column], names: Sequence[str], shapes: Sequence[Any], of: str) -> None:
    """Compare columns with the shapes of a model's inputs or outputs, in which None fits any size.

    The first number of a shape is the batch. If they differ, raises ArgumentError, whose message calls the columns
    `of`, "input" or "label".
    """
    if len(names) != len(shapes):
        raise farandole.ArgumentError(
            f"the model has {len(shapes)} {of} shapes, and the estimator {len(names)} {of} columns "
            f"({', '.join(names)}); give as many."
        )
    for name, shape in zip(names, shapes, strict=True):
        needed = [1 if each is None else int(each) for each in (shape or ())[1:]]
        if shape is None or None in tuple(shape)[1:] or -1 in needed:
            continue
        if math.prod(needed) != columns[name].size:
            raise farandole.ArgumentError(
                f"the column {name!r} has {columns[name].size} numbers in each row, and the model's {of} shape is "
                f"{tuple(shape)}, which takes {math.prod(needed)}."
            )
