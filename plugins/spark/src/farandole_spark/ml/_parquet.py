"""Data sets from Parquet files that are already in a store."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from typing import Any

import farandole

from farandole_spark.ml._columns import ARRAY, SCALAR, VECTOR, Column
from farandole_spark.ml._reader import DataSet
from farandole_spark.ml._shards import RowGroup
from farandole_spark.ml.store import Store

_NUMBERS = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
}
_TYPES = {**_NUMBERS, "string": "string", "binary": "binary"}
_VALUES, _TYPE, _DENSE = "values", "type", 1  # fields of a vector in Spark's files, and the type of a dense one


def data_in_store(
    store: Store, number: int | None, names: Sequence[str], with_validation: bool, may_be_any: bool
) -> tuple[DataSet, DataSet]:
    """Return the data for training and those for validation, which may be empty.

    `may_be_any` is true for a transformation function, which also takes strings and binary data. Raises ArgumentError
    if there are no files or rows, or for a column that no model takes.
    """
    train = _read(store, store.get_train_data_path(number), names, may_be_any)
    path = store.get_val_data_path(number)
    return train, _read(store, path, names, may_be_any) if with_validation else DataSet(path, (), train.columns)


def _read(store: Store, path: str, names: Sequence[str], may_be_any: bool) -> DataSet:
    if not store.is_parquet_dataset(path):
        raise farandole.ArgumentError(f"the store has no Parquet files in {path}; write them, or use fit.")
    found = store.get_parquet_dataset(path)
    groups: list[RowGroup] = []
    fragments = list(found.get_fragments())
    for fragment in fragments:
        groups += [
            RowGroup(fragment.path, each.id, each.num_rows, _bytes_of(fragment.metadata.row_group(each.id), names))
            for each in fragment.row_groups
            if each.num_rows
        ]
    columns = [_column(found.schema, name, may_be_any) for name in dict.fromkeys(names)]
    if not groups:
        raise farandole.ArgumentError(f"the Parquet files in {path} have no rows.")
    sized, digest = tuple(_sized(found, column) for column in columns), 0
    for fragment in fragments:
        for each in fragment.row_groups:
            group = fragment.metadata.row_group(each.id)
            _check(group, sized, found.schema.names, fragment.path, each.id)
            digest = zlib.crc32(repr(group.to_dict()).encode(), digest)  # with sizes, minima and maxima
    return DataSet(path, tuple(groups), sized, {"row groups": (digest, 0)})


def _bytes_of(group: Any, names: Sequence[str]) -> int:
    """Return the uncompressed bytes of these columns in a row group, from its metadata."""
    columns = (group.column(place) for place in range(group.num_columns))
    return sum(
        each.total_uncompressed_size
        for each in columns
        if any(each.path_in_schema == name or each.path_in_schema.startswith(f"{name}.") for name in names)
    )


def _check(group: Any, columns: Sequence[Column], names: Sequence[str], file: str, index: int) -> None:
    """Raise ArgumentError for problems that a row group's metadata show. `check_rows` finds the others."""
    by_name, others = {column.name: column for column in columns}, set(names)
    for each in (group.column(place) for place in range(group.num_columns)):
        path, known = each.path_in_schema, each.statistics
        ends = [place for place, letter in enumerate(path) if letter == "."]  # names may contain dots
        parents = [] if path in others else [by_name[path[:end]] for end in ends if path[:end] in by_name]
        column = by_name.get(path) or next((parent for parent in parents if parent.kind != SCALAR), None)
        if column is None:
            continue
        problem = remedy = ""
        if path == f"{column.name}.{_TYPE}" and column.kind == VECTOR:
            if known is not None and known.has_min_max and not known.min == known.max == _DENSE:
                problem, remedy = "sparse vectors", "make them dense"
        elif column.kind == VECTOR and not path.startswith(f"{column.name}.{column.field}."):
            continue
        elif known is not None and known.has_null_count and known.null_count:
            problem, remedy = "nulls", "fill them, or drop these rows"
        elif each.num_values != group.num_rows * column.size:
            problem = f"rows of another size than {column.size}, that of the first row"
            remedy = "make them equally long"
        if problem:
            raise farandole.ArgumentError(
                f"the column {column.name!r} has {problem} in row group {index} of {file}; {remedy}."
            )


def _column(schema: Any, name: str, may_be_any: bool) -> Column:
    if name not in schema.names:
        raise farandole.ArgumentError(
            f"the Parquet files have no column {name!r}; they have {', '.join(schema.names)}."
        )
    kind = schema.field(name).type
    known = _TYPES if may_be_any else _NUMBERS
    if str(kind) in known:
        return Column(name, SCALAR, known[str(kind)])
    if str(kind).startswith("struct<") and kind.get_field_index(_VALUES) >= 0:
        return Column(name, VECTOR, "double", field=_VALUES)
    element = str(kind.value_type) if hasattr(kind, "value_type") else ""
    if element not in _NUMBERS:
        raise farandole.ArgumentError(f"the column {name!r} has the type {kind}, which no model takes.")
    return Column(name, ARRAY, _NUMBERS[element])


def _sized(found: Any, column: Column) -> Column:
    """Return the column with the size of its first row."""
    import pyarrow.dataset

    if column.kind == SCALAR:
        return column
    source = pyarrow.dataset.field(column.name, column.field) if column.field else pyarrow.dataset.field(column.name)
    first = found.head(1, columns={column.name: source}).column(0)
    value = first[0].as_py() if len(first) else None
    if value is None:
        raise farandole.ArgumentError(f"the column {column.name!r} has a null, or a sparse vector, in its first row.")
    return dataclasses.replace(column, size=len(value))
