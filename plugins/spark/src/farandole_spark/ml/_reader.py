"""Reads the batches of a rank from Parquet files, ahead of the training.

A thread reads row groups into windows of about 16 MiB, shuffles each window, and cuts it into blocks of equal batches,
while the training consumes the window before. So a rank holds two windows and the row group that is being read,
whatever the size of the data set.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import farandole
import numpy as np

from farandole_spark.ml._checkpoints import Facts
from farandole_spark.ml._columns import SCALAR, Column
from farandole_spark.ml._shards import Piece, RowGroup, Share, order_of

Arrays = dict[str, Any]
"""NumPy arrays by column: (rows,) of a scalar column, else (rows, size)."""
Stream = Generator[Arrays, None, None]
Transformation = Callable[[dict[str, Any]], dict[str, Any]]
_WINDOW_BYTES = 16 << 20


@dataclass(frozen=True)
class DataSet:
    """Prepared data: Parquet files in a store. `rows` may be 0. `facts` distinguish them from other data."""

    path: str
    groups: tuple[RowGroup, ...]
    columns: tuple[Column, ...]
    facts: Facts = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of rows of all ranks."""
        return sum(group.rows for group in self.groups)


@dataclass(frozen=True)
class Reading:
    """How a rank reads a data set.

    `float_type` is the type of floats; None keeps each column's type. With `seed` None, rows are not shuffled. `kept`
    holds the rank's share of each data set in memory; with None, each pass reads it again. `window_rows` None means as
    many as fit into 16 MiB.
    """

    batch_size: int
    seed: int | None = None
    float_type: str | None = None
    kept: dict[str, Arrays] | None = None
    window_rows: int | None = None
    transformation: Transformation | None = None


def blocks(data: DataSet, filesystem: Any, share: Share, how: Reading, first: int = 0) -> Stream:
    """Yield blocks of batches, endlessly, pass after pass, from batch `first` on. Close it to end its thread.

    A block has several batches of the same size, which are the first dimension of its arrays.
    """
    per_pass = share.batches(how.batch_size)
    skipped, number = first % per_pass, first // per_pass
    source = _ahead(_blocks_of_passes(data, filesystem, share, how, number))
    try:
        for block in source:
            count = len(next(iter(block.values())))
            if skipped < count:
                yield {name: each[skipped:] for name, each in block.items()} if skipped else block
            skipped = max(0, skipped - count)
    finally:
        source.close()


def batches_of(stream: Stream) -> Stream:
    """Yield the batches of blocks one by one. Closes the blocks."""
    with contextlib.closing(stream):
        for block in stream:
            for number in range(_rows(block)):
                yield {name: each[number] for name, each in block.items()}


def _blocks_of_passes(data: DataSet, filesystem: Any, share: Share, how: Reading, first: int) -> Iterator[Arrays]:
    rows, files = _window_rows(data, how), _Files(data, filesystem, how.float_type)
    if how.kept is not None and data.path not in how.kept:
        how.kept[data.path] = _joined([files.read(piece) for piece in next(share.windows(share.rows))])
    for number in itertools.count(first):
        rng = order = None
        if how.seed is not None:
            rng = np.random.default_rng([how.seed, number, share.rank])
            order = order_of(len(data.groups), how.seed, number)
        pieces = share.windows(rows, order)
        windows = _from_store(files, pieces, rng) if how.kept is None else _in_memory(how.kept[data.path], rows, rng)
        for window in windows:
            for block in _cut(window, how.batch_size):
                yield from _transformed(block, how.transformation) if how.transformation else [block]


def _window_rows(data: DataSet, how: Reading) -> int:
    """Return the number of rows of a window: whole batches, at least one."""
    numbers = 8 * sum(column.size for column in data.columns)
    stored = max(
        (-(-group.size // group.rows) for group in data.groups), default=0
    )  # strings and binary data take more
    wanted = how.window_rows or _WINDOW_BYTES // max(1, numbers, stored)
    return max(1, wanted // how.batch_size) * how.batch_size


def _from_store(files: _Files, windows: Iterator[list[Piece]], rng: np.random.Generator | None) -> Iterator[Arrays]:
    for pieces in windows:
        parts = [files.read(piece) for piece in pieces]
        yield _joined(parts) if rng is None else _shuffled(parts, rng)


def _in_memory(share: Arrays, rows: int, rng: np.random.Generator | None) -> Iterator[Arrays]:
    """Windows of the rank's share, all of which is shuffled."""
    order = None if rng is None else rng.permutation(_rows(share))
    for start in range(0, _rows(share), rows):
        chosen: Any = slice(start, start + rows)
        yield {name: each[chosen if order is None else order[chosen]] for name, each in share.items()}


class _Files:
    """The files of a data set. It keeps the last row group, because several pieces of a share may need it."""

    def __init__(self, data: DataSet, filesystem: Any, float_type: str | None) -> None:
        self._data, self._filesystem, self._float_type = data, filesystem, float_type
        self._fragments: dict[str, Any] = {}  # found at the first read
        self._last: tuple[RowGroup, Arrays] | None = None

    def read(self, piece: Piece) -> Arrays:
        if self._last is None or self._last[0] != piece.group:
            self._last = piece.group, self._read_group(piece.group)
        return {name: each[piece.start : piece.stop] for name, each in self._last[1].items()}

    def _read_group(self, group: RowGroup) -> Arrays:
        import pyarrow.dataset

        columns = self._data.columns
        if not self._fragments:
            files = sorted({group.file for group in self._data.groups})
            found = pyarrow.dataset.dataset(files, format="parquet", filesystem=self._filesystem)
            self._fragments = {fragment.path: fragment for fragment in found.get_fragments()}
        fragment = self._fragments[group.file].subset(row_group_ids=[group.index])
        table = fragment.to_table(columns={each.name: source_of(each) for each in columns}, use_threads=False)
        for each in columns:
            check_rows(table.column(each.name), each, group)
        return {each.name: to_numpy(table.column(each.name), each, self._float_type) for each in columns}


def source_of(column: Column) -> Any:
    """The expression of pyarrow that reads a column."""
    import pyarrow.dataset

    return pyarrow.dataset.field(*filter(None, (column.name, column.field)))


def nulls_and_sizes(values: Any) -> tuple[int, set[int]]:
    """How many nulls a column of Arrow has, also in its lists, and the lengths of these lists."""
    import pyarrow.compute

    if not hasattr(values.type, "value_type"):
        return values.null_count, set()
    lengths = pyarrow.compute.min_max(pyarrow.compute.list_value_length(values)).as_py().values()
    nulls = values.null_count + pyarrow.compute.list_flatten(values).null_count
    return nulls, {each for each in lengths if each is not None}


def check_rows(values: Any, column: Column, group: RowGroup) -> None:
    """Raise ArgumentError for nulls, and for rows of another size than the column's."""
    nulls, sizes = nulls_and_sizes(values)
    where = f"in row group {group.index} of {group.file}"
    if nulls:
        raise farandole.ArgumentError(f"the column {column.name!r} has nulls {where}; fill them, or drop these rows.")
    if sizes - {column.size}:
        sizes.add(column.size)
        raise farandole.ArgumentError(
            f"the column {column.name!r} has rows of {min(sizes)} to {max(sizes)} numbers {where}; make them equally "
            "long."
        )


def to_numpy(values: Any, column: Column, float_type: str | None) -> Any:
    """Convert a column of Arrow to an array of NumPy, of shape (rows,) or (rows, size)."""
    array = values.combine_chunks()
    if hasattr(array, "chunks"):  # older versions of Arrow return a list with one chunk
        array = array.chunk(0)
    flat = array if column.kind == SCALAR else array.flatten()
    found = flat.to_numpy(zero_copy_only=False)
    if float_type is not None and found.dtype.kind == "f":
        found = found.astype(float_type, copy=False)
    return found if column.kind == SCALAR else found.reshape(-1, column.size)


def _rows(arrays: Mapping[str, Any]) -> int:
    return len(next(iter(arrays.values())))


def _joined(parts: Sequence[Arrays]) -> Arrays:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _shuffled(parts: Sequence[Arrays], rng: np.random.Generator) -> Arrays:
    """Shuffle the rows of all parts, copying each row once."""
    order = rng.permutation(sum(map(_rows, parts)))
    found = {name: np.empty((len(order), *each.shape[1:]), each.dtype) for name, each in parts[0].items()}
    start = 0
    for part in parts:
        places = order[start : start + _rows(part)]
        start += len(places)
        for name, each in part.items():
            found[name][places] = each
    return found


def _cut(window: Arrays, batch_size: int) -> Iterator[Arrays]:
    """Cut a window into a block of whole batches, and another with the last, smaller batch of a pass."""
    whole = _rows(window) // batch_size * batch_size
    if whole:
        yield {name: each[:whole].reshape(-1, batch_size, *each.shape[1:]) for name, each in window.items()}
    if whole < _rows(window):
        yield {name: each[None, whole:] for name, each in window.items()}


def _transformed(block: Arrays, transformation: Transformation) -> Iterator[Arrays]:
    """Transform each batch separately, because transformed rows may be far larger than the stored ones."""
    for number in range(_rows(block)):
        columns = {name: each[number] for name, each in block.items()}
        rows = [transformation({name: each[row] for name, each in columns.items()}) for row in range(_rows(columns))]
        yield {name: np.stack([np.asarray(row[name]) for row in rows])[None] for name in rows[0]}


def _ahead(source: Iterator[Arrays]) -> Stream:
    """The items of `source`, each made on a thread while the one before is in use. Raises what it raises."""
    with futures.ThreadPoolExecutor(1, "farandole-reader") as thread:
        following = thread.submit(next, source, None)
        while (item := following.result()) is not None:
            following = thread.submit(next, source, None)
            yield item
