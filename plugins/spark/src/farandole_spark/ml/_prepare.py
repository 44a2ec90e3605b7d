"""Writes a DataFrame as Parquet files into a store, in Spark's tasks, for the ranks to read.

Each task writes the rows of its partition into one file for training and one for validation, and reports what it has
written. The driver uses only the reported files, so repeated tasks do no harm. A task also reports what is wrong with
the data, instead of raising an error, because Spark would repeat the task.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import farandole
import numpy as np
from farandole.engine import pack_call, unpack_call

from farandole_spark.ml._checkpoints import reason_of
from farandole_spark.ml._columns import SCALAR, VECTOR, Column, columns_of
from farandole_spark.ml._reader import DataSet, nulls_and_sizes
from farandole_spark.ml._shards import RowGroup
from farandole_spark.ml.store import Store

_IS_VALIDATION = "_farandole_is_validation"
_ROUNDING = 1e-9  # of sums, whose order changes each time
_GROUP_ROWS, _GROUP_BYTES = 1 << 16, 16 << 20  # maximum of a row group, which is read as a whole


@dataclasses.dataclass(frozen=True)
class Request:
    """What to write: columns by name, and the rows for validation (a share of them, or a column's name)."""

    names: tuple[str, ...]
    validation: float | str | None
    seed: int
    partitions: int | None = None
    may_be_any: bool = False


@dataclasses.dataclass(frozen=True)
class _Report:
    """A task's report about a partition. By column, `sizes` are the numbers in a row, and `nulls` are rows.

    By column, `sums` are those of the values, of their products with the previous column, and of the absolute values
    of both.
    """

    files: Mapping[str, Sequence[Sequence[int]]]  # the rows and the bytes of each row group
    sizes: Mapping[str, Sequence[int]]
    nulls: Mapping[str, int]
    sums: Mapping[str, Sequence[float]]
    error: str = ""


def prepare(frame: Any, request: Request, store: Store, token: str) -> tuple[DataSet, DataSet]:
    """Write the rows for training and for validation, and return both data sets. The second one may be empty.

    Raises ArgumentError if there are no rows, or rows that no model takes, and FarandoleError if writing fails.
    """
    columns = columns_of(frame.schema.fields, request.names, request.may_be_any)
    paths = store.get_train_data_path(token), store.get_val_data_path(token)
    reports = _write(_selected(frame, columns, request), columns, request, store, paths)
    _check(reports, [column.name for column in columns])
    sized = tuple(_sized(column, reports) for column in columns)
    facts = _facts(reports, request.names)
    train, validation = (
        DataSet(path, tuple(_groups(reports, store.get_localized_path(path))), sized, facts) for path in paths
    )
    if not train.rows:
        raise farandole.ArgumentError("the DataFrame has no rows for training; check it and `validation`.")
    if request.validation and not validation.rows:
        raise farandole.ArgumentError(
            f"validation={request.validation!r} chose no row of {train.rows}; give a larger share, or check the column."
        )
    return train, validation


def _selected(frame: Any, columns: Sequence[Column], request: Request) -> Any:
    """Return the columns for Arrow, with vectors as arrays of numbers."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions

    chosen = []
    for column in columns:
        source = functions.col(f"`{column.name}`")
        if column.kind == VECTOR:
            source = functions.when(source.isNotNull(), vector_to_array(source))  # vector_to_array refuses a null
        elif column.kind == SCALAR and column.type == "double":
            source = source.cast("double")  # also decimals
        chosen.append(source.alias(column.name))
    if isinstance(request.validation, str):
        chosen.append((functions.col(f"`{request.validation}`").cast("double") > 0).alias(_IS_VALIDATION))
    selected = frame.select(*chosen)
    return selected.repartition(request.partitions) if request.partitions else selected


def _write(
    frame: Any, columns: Sequence[Column], request: Request, store: Store, paths: tuple[str, str]
) -> list[_Report]:
    folders = [store.get_localized_path(path) for path in paths]
    share = request.validation if isinstance(request.validation, float) else 0.0
    writer = _PartitionWriter(store, folders, [column.name for column in columns], share, request.seed)
    call = pack_call(writer.write, (), {}, "fit")  # includes the class of the store, wherever it is defined
    rows = frame.mapInArrow(partial(_call, call), "partition int, report string").collect()
    return [_Report(**json.loads(row["report"])) for row in sorted(rows, key=lambda row: row["partition"])]


def _call(call: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    write, _, _ = unpack_call(call)
    return write(batches)  # type: ignore[no-any-return]


class _PartitionWriter:
    """The function of a task, which turns Arrow batches into one row with the report."""

    def __init__(self, store: Store, folders: Sequence[str], names: Sequence[str], share: float, seed: int) -> None:
        self._store, self._folders, self._names, self._share, self._seed = store, folders, names, share, seed

    def write(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow
        from pyspark import TaskContext

        partition = TaskContext.get().partitionId()
        report = self._report(batches, partition)
        text = json.dumps(dataclasses.asdict(report))
        yield pyarrow.RecordBatch.from_pydict(
            {"partition": pyarrow.array([partition], pyarrow.int32()), "report": [text]}
        )

    def _report(self, batches: Iterator[Any], partition: int) -> _Report:
        rng = np.random.default_rng([self._seed, partition])
        facts, name = _Facts(self._names), f"part-{partition:05d}-{uuid.uuid4().hex}.parquet"
        files = [_File(self._store, f"{folder}/{name}") for folder in self._folders]
        error = ""
        try:
            for batch in batches:
                facts.add(batch)
                for file, part in zip(files, self._parted(batch, rng), strict=True):
                    if part.num_rows and not facts.nulls:
                        file.add(part)
        except OSError as raised:
            error = reason_of(raised)
        for file in files:
            error = file.close() or error
        groups = {file.path: file.groups for file in files if file.groups}
        return _Report(groups, facts.sizes, facts.nulls, {name: [*each] for name, each in facts.sums.items()}, error)

    def _parted(self, batch: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        """Return the rows for training and those for validation."""
        import pyarrow

        rows = batch.select(self._names)
        if _IS_VALIDATION in batch.schema.names:
            chosen = batch.column(_IS_VALIDATION).fill_null(False).to_numpy(zero_copy_only=False)
        elif self._share:
            chosen = rng.random(batch.num_rows) < self._share
        else:
            return rows, rows.slice(0, 0)
        return rows.filter(pyarrow.array(~chosen)), rows.filter(pyarrow.array(chosen))


class _Facts:
    """Counts nulls, notes the sizes of lists, and adds up values. The result does not depend on the order of rows."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self.nulls: dict[str, int] = {}
        self.sizes: dict[str, list[int]] = {}
        self.sums: dict[str, Any] = {}

    def add(self, batch: Any) -> None:
        before: Any = 1.0
        for name in self._names:
            values = batch.column(name)
            nulls, sizes = nulls_and_sizes(values)
            if sizes:
                sizes.update(self.sizes.get(name, ()))
                self.sizes[name] = [min(sizes), max(sizes)]
            if nulls:
                self.nulls[name] = self.nulls.get(name, 0) + nulls
            else:
                numbers = _numbers(values)
                terms = np.stack([numbers, numbers * before])
                self.sums[name] = self.sums.get(name, 0) + np.concatenate([terms.sum(1), np.abs(terms).sum(1)])
                before = numbers


def _numbers(values: Any) -> Any:
    """A number for each value of Arrow, finite and without nulls; the place in a list counts."""
    if hasattr(values.type, "value_type"):
        flat = np.nan_to_num(values.flatten().to_numpy(zero_copy_only=False).astype(float), posinf=1, neginf=2)
        size, rest = divmod(len(flat), max(1, len(values)))
        return flat.reshape(len(values), size) @ np.cos(np.arange(size)) if not rest else np.zeros(len(values))
    found = values.to_numpy(zero_copy_only=False)
    if found.dtype == object:
        found = np.array([zlib.crc32(each.encode() if isinstance(each, str) else each) for each in found])
    return np.nan_to_num(found.astype(float), posinf=1, neginf=2)


def _facts(reports: Sequence[_Report], names: Sequence[str]) -> dict[str, tuple[float, float]]:
    facts: dict[str, tuple[float, float]] = {}
    for name in names:
        sums = [np.array(report.sums.get(name, [0.0] * 4)) for report in reports]
        first, second, *scales = sum(sums, np.zeros(4)).tolist()
        facts |= {name: (first, _ROUNDING * scales[0]), f"{name}, paired": (second, _ROUNDING * scales[1])}
    return facts


class _File:
    """A Parquet file that is opened with its first row. `groups` has the rows and the bytes of each row group."""

    def __init__(self, store: Store, path: str) -> None:
        self.path = path
        self.groups: list[tuple[int, int]] = []
        self._fs = store.fs
        self._held: list[Any] = []
        self._stream: Any = None
        self._writer: Any = None

    def add(self, rows: Any) -> None:
        self._held.append(rows)
        if (
            sum(each.num_rows for each in self._held) >= _GROUP_ROWS
            or sum(each.nbytes for each in self._held) >= _GROUP_BYTES
        ):
            self._write()

    def close(self) -> str:
        """Write the rest. Returns why that failed, or ""."""
        try:
            if self._held:
                self._write()
            for each in (self._writer, self._stream):
                if each is not None:
                    each.close()
        except OSError as error:
            return reason_of(error)
        return ""

    def _write(self) -> None:
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.Table.from_batches(self._held)
        self._held = []
        if self._writer is None:
            self._fs.makedirs(self.path.rpartition("/")[0], exist_ok=True)
            self._stream = self._fs.open(self.path, "wb")
            self._writer = pyarrow.parquet.ParquetWriter(self._stream, table.schema, use_dictionary=False)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.groups.append((table.num_rows, table.nbytes))


def _check(reports: Sequence[_Report], names: Sequence[str]) -> None:
    """Raise the errors that the tasks have reported."""
    for name in names:
        if nulls := sum(report.nulls.get(name, 0) for report in reports):
            raise farandole.ArgumentError(
                f"the column {name!r} has {nulls} null{'s' if nulls > 1 else ''}; fill them, or drop these rows: "
                f"frame.na.drop(subset=[{name!r}])."
            )
    if error := next((report.error for report in reports if report.error), ""):
        raise farandole.FarandoleError(f"the training data were not written: {error}.")


def _sized(column: Column, reports: Sequence[_Report]) -> Column:
    if column.kind == SCALAR:
        return column
    sizes = sorted({size for report in reports for size in report.sizes.get(column.name, ())})
    if len(sizes) > 1:
        raise farandole.ArgumentError(
            f"the column {column.name!r} has rows of {sizes[0]} to {sizes[-1]} numbers; make them equally long."
        )
    return dataclasses.replace(column, size=sizes[0] if sizes else 0)


def _groups(reports: Sequence[_Report], folder: str) -> Iterator[RowGroup]:
    for report in reports:
        for path, groups in report.files.items():
            if path.startswith(f"{folder}/"):
                yield from (RowGroup(path, index, rows, size) for index, (rows, size) in enumerate(groups))
