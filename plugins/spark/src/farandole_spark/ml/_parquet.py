"""Data sets from Parquet files that are already in a store."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import farandole

from farandole_spark.ml._columns import ARRAY, SCALAR, VECTOR, Column
from farandole_spark.ml._reader import DataSet, source_of
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
    columns = [_column(found.schema, name, may_be_any) for name in dict.fromkeys(names)]
    metadata = {fragment.path: fragment.metadata for fragment in found.get_fragments()}
    places = [(file, index) for file, each in metadata.items() for index in range(each.num_row_groups)]
    stored = [(file, index, metadata[file].row_group(index)) for file, index in places]
    if not any(group.num_rows for _, _, group in stored):
        raise farandole.ArgumentError(f"the Parquet files in {path} have no rows.")
    sized, groups, digest = tuple(_sized(found, column) for column in columns), list[RowGroup](), 0
    for file, index, group in stored:
        size = 0
        for leaf, column in _leaves(group, sized, found.schema.names):
            _check(leaf, column, group.num_rows, f"in row group {index} of {file}")
            size += leaf.total_uncompressed_size
        groups += [RowGroup(file, index, group.num_rows, size)] if group.num_rows else []
        digest = zlib.crc32(repr(group.to_dict()).encode(), digest)  # with sizes, and the least and largest values
    return DataSet(path, tuple(groups), sized, {"row groups": (digest, 0)})


def _leaves(group: Any, columns: Sequence[Column], names: Sequence[str]) -> Iterator[tuple[Any, Column]]:
    """What Parquet stores of these columns in a row group: of a list its elements, of a vector each field."""
    by_name, others = {column.name: column for column in columns}, set(names)
    for leaf in (group.column(place) for place in range(group.num_columns)):
        path = leaf.path_in_schema
        ends = [place for place, letter in enumerate(path) if letter == "."]  # names may have dots, too
        parents = [] if path in others else [by_name[path[:end]] for end in ends if path[:end] in by_name]
        column = by_name.get(path) or next((parent for parent in parents if parent.kind != SCALAR), None)
        if column is not None:
            yield leaf, column


def _check(leaf: Any, column: Column, rows: int, where: str) -> None:
    """Raise ArgumentError for what a row group's metadata tell of its rows; `check_rows` finds the rest."""
    path, known = leaf.path_in_schema, leaf.statistics
    if path == f"{column.name}.{_TYPE}" and column.kind == VECTOR:
        if known is not None and known.has_min_max and not known.min == known.max == _DENSE:
            raise farandole.ArgumentError(f"the column {column.name!r} has sparse vectors {where}; make them dense.")
    elif column.kind == VECTOR and not path.startswith(f"{column.name}.{column.field}."):
        return
    elif known is not None and known.has_null_count and known.null_count:
        raise farandole.ArgumentError(f"the column {column.name!r} has nulls {where}; fill them, or drop these rows.")
    elif leaf.num_values != rows * column.size:
        raise farandole.ArgumentError(
            f"the column {column.name!r} has rows of another size than {column.size}, that of the first row, {where}; "
            "make them equally long."
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
    """The column with the size of its first row."""
    if column.kind == SCALAR:
        return column
    first = found.head(1, columns={column.name: source_of(column)}).column(0)
    value = first[0].as_py() if len(first) else None
    if value is None:
        raise farandole.ArgumentError(f"the column {column.name!r} has a null, or a sparse vector, in its first row.")
    return dataclasses.replace(column, size=len(value))
