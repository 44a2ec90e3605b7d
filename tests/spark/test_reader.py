"""The batches of each rank from Parquet files, without Spark."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import farandole
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from estimators import ROWS, columns, write_columns
from farandole_spark.ml._checkpoints import Identity
from farandole_spark.ml._parquet import data_in_store
from farandole_spark.ml._prepare import _Facts, _facts, _groups, _PartitionWriter, _Report
from farandole_spark.ml._reader import DataSet, Reading, batches_of, blocks
from farandole_spark.ml._shards import Share
from farandole_spark.ml.store import Store


def ids(store: Store, rank: int, size: int, how: Reading, first: int = 0, passes: int = 1) -> list[list[int]]:
    """The rows of each batch of a rank."""
    data, _ = data_in_store(store, 0, ["id", "x"], with_validation=False, may_be_any=False)
    share = Share(data.groups, rank, size)
    read = batches_of(blocks(data, store.fs, share, how, first))
    found = list(itertools.islice(read, passes * share.batches(how.batch_size) - first))
    read.close()
    for batch in found:
        assert batch["x"].shape == (len(batch["id"]), 4)
    return [batch["id"].tolist() for batch in found]


def test_batches_follow_the_order_of_the_rows(tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    write_columns(store)
    first, second = (ids(store, rank, 2, Reading(batch_size=20)) for rank in range(2))
    assert [len(batch) for batch in first] == [20, 20, 10]
    assert [row for batch in [*first, *second] for row in batch] == list(range(ROWS))


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("window_rows", [None, 20])
def test_shuffled_passes_have_every_row_in_another_order(
    tmp_path: Path, in_memory: bool, window_rows: int | None
) -> None:
    store = Store.create(tmp_path)
    write_columns(store, groups=7)
    found = []
    for rank in range(3):
        how = Reading(batch_size=7, seed=3, kept={} if in_memory else None, window_rows=window_rows)
        found.append([row for batch in ids(store, rank, 3, how, passes=2) for row in batch])
    share = -(-ROWS // 3)
    passes = [[row for rank in found for row in rank[number * share : (number + 1) * share]] for number in range(2)]
    assert {*passes[0]} == {*passes[1]} == {*range(ROWS)} and passes[0] != passes[1]
    assert [len(rank) for rank in found] == [2 * share] * 3
    assert all(rank[:share] != sorted(rank[:share]) for rank in found)


@pytest.mark.parametrize("seed", [None, 3])
def test_a_later_batch_is_the_same_after_a_resume(tmp_path: Path, seed: int | None) -> None:
    store = Store.create(tmp_path)
    write_columns(store)
    how = Reading(batch_size=9, seed=seed, window_rows=20)
    whole = ids(store, 1, 2, how, passes=3)
    for first in (1, 5, 6, 7, 13):
        assert ids(store, 1, 2, how, first, passes=3) == whole[first:]


def test_rows_come_from_any_file_system(tmp_path: Path) -> None:
    local, store = Store.create(tmp_path), Store.create("memory://estimators")
    write_columns(local)
    target = store.get_localized_path(store.get_train_data_path(0))
    store.fs.put(local.get_train_data_path(0), target, recursive=True)
    assert ids(store, 0, 1, Reading(batch_size=50)) == [list(range(50)), list(range(50, ROWS))]


def test_types_are_kept_or_those_of_the_model(tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    write_columns(store)
    data, _ = data_in_store(store, 0, ["id", "x", "is_test"], with_validation=False, may_be_any=False)
    for float_type, expected in ((None, "float64"), ("float32", "float32")):
        how = Reading(batch_size=5, float_type=float_type)
        read = batches_of(blocks(data, store.fs, Share(data.groups, 0, 1), how))
        batch = next(read)
        read.close()
        assert [str(batch[name].dtype) for name in ("id", "x", "is_test")] == ["int64", expected, "bool"]


def read_all(folder: Path, name: str, values: Any) -> None:
    """Write a column in row groups of two rows, and read it."""
    store = Store.create(folder)
    path = Path(store.get_train_data_path(0))
    path.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.table({name: values}), path / "part.parquet", row_group_size=2)
    data, _ = data_in_store(store, 0, [name], with_validation=False, may_be_any=False)
    share = Share(data.groups, 0, 1)
    read = batches_of(blocks(data, store.fs, share, Reading(batch_size=2)))
    for _ in range(share.batches(2)):
        next(read)
    read.close()


def vector(kind: int, values: list[float] | None) -> dict[str, Any]:
    """A vector of two numbers as Spark writes it."""
    return {"type": kind, "values": values} if kind else {"type": 0, "size": 2, "indices": [1, 0], "values": values}


VECTOR_TYPE = pyarrow.struct(
    {
        "type": pyarrow.int8(),
        "size": pyarrow.int32(),
        "indices": pyarrow.list_(pyarrow.int32()),
        "values": pyarrow.list_(pyarrow.float64()),
    }
)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pyarrow.array([1.0, 2.0, 3.0, None]), "has nulls in row group 1 of .*part.parquet"),
        (pyarrow.array([[1.0, 2.0]] * 3 + [[1.0, None]]), "has nulls in row group 1 of .*part.parquet"),
        (pyarrow.array([[1.0, 2.0]] * 3 + [None]), "has nulls in row group 1 of .*part.parquet"),
        (pyarrow.array([[1.0, 2.0]] * 3 + [[1.0]]), "has rows of another size than 2, .* in row group 1 of .*part.pa"),
        (
            pyarrow.array([[1.0, 2.0]] * 2 + [[1.0], [1.0, 2.0, 3.0]]),
            "has rows of 1 to 3 numbers in row group 1 of .*p",
        ),
        (pyarrow.array([[1.0, 2.0]] * 2 + [[]] * 2), "has nulls in row group 1|another size than 2"),
        (
            pyarrow.array([vector(1, [1, 2])] * 3 + [vector(0, [1, 2])], VECTOR_TYPE),
            "has sparse vectors in row group 1",
        ),
        (pyarrow.array([vector(1, [1, 2])] * 3 + [None], VECTOR_TYPE), "has nulls in row group 1 of"),
        (pyarrow.array([], pyarrow.float64()), "the Parquet files in .* have no rows"),
    ],
)
def test_rows_that_no_model_takes_are_named(tmp_path: Path, values: Any, message: str) -> None:
    with pytest.raises(farandole.ArgumentError, match=message):
        read_all(tmp_path, "v", values)


def test_rows_of_every_kind_of_column_are_taken(tmp_path: Path) -> None:
    rows = [[1.0, 2.0]] * 4
    kinds = [None, pyarrow.large_list(pyarrow.float32()), pyarrow.list_(pyarrow.float64(), 2)]
    for number, values in enumerate(
        [pyarrow.array([vector(1, row) for row in rows], VECTOR_TYPE), *(pyarrow.array(rows, kind) for kind in kinds)]
    ):
        read_all(tmp_path / str(number), "v", values)


def rows_of_windows(data: DataSet, store: Store) -> list[int]:
    """The rows of the first blocks, which are windows."""
    read = blocks(data, store.fs, Share(data.groups, 0, 1), Reading(batch_size=5))
    found = [len(block["image"]) * 5 for block in itertools.islice(read, 3)]
    read.close()
    return found


def test_windows_of_binary_data_are_as_small_as_others(tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    image = np.random.default_rng(1).bytes(1 << 20)
    batch = pyarrow.record_batch({"image": pyarrow.array([image + bytes([row]) for row in range(60)])})
    path = Path(store.get_train_data_path(0))
    path.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_batches([batch]), path / "part.parquet", row_group_size=20)
    data, _ = data_in_store(store, 0, ["image"], with_validation=False, may_be_any=True)
    assert max(rows_of_windows(data, store)) <= 16

    report = _PartitionWriter(store, [str(path / "a"), str(path / "b")], ["image"], 0.0, 1)._report([batch], 0)
    data = DataSet(str(path / "a"), tuple(_groups([report], str(path / "a"))), data.columns)
    assert max(rows_of_windows(data, store)) <= 16


def test_what_a_transformation_raises_reaches_the_training(tmp_path: Path) -> None:
    def fail(row: dict[str, Any]) -> dict[str, Any]:
        raise LookupError(f"row {row['id']}")

    store = Store.create(tmp_path)
    write_columns(store)
    with pytest.raises(LookupError, match="row 0"):
        ids(store, 0, 1, Reading(batch_size=5, transformation=fail))


def test_the_thread_ends_with_the_batches(tmp_path: Path) -> None:
    store = Store.create(tmp_path)
    write_columns(store)
    ids(store, 0, 1, Reading(batch_size=5))
    assert not any(each.name.startswith("farandole-reader") for each in threading.enumerate())


def facts(found: dict[str, Any], order: Any, parts: int) -> Any:
    """What is noted of rows in this order and so many partitions."""
    names, reports = [*found], []
    for rows in np.array_split(order, parts):
        noted = _Facts(names)
        for some in (rows[:7], rows[7:], rows[:0]):
            arrays = {name: list(values[some]) if values.ndim > 1 else values[some] for name, values in found.items()}
            noted.add(pyarrow.RecordBatch.from_pydict(arrays))
        reports.append(_Report({}, noted.sizes, noted.nulls, {name: [*each] for name, each in noted.sums.items()}))
    return _facts(reports, names)


def test_data_are_known_again_in_any_order() -> None:
    names = ("id", "x", "y", "is_test", "text")
    found = {name: values for name, values in columns().items() if name in names}
    rows = np.arange(ROWS)
    known = Identity(facts(found, rows, 1), {})
    assert known.difference({}, facts(found, rows[::-1], 3)) == ""
    assert known.difference({}, facts({**found, "y": found["y"] * (1 + 1e-14)}, rows, 2)) == ""
    assert known.difference({}, facts(found, rows[1:], 2)) == "data"
    swapped = np.array([1, 0, *rows[2:]])
    for name in ("x", "y", "text"):
        assert known.difference({}, facts({**found, name: found[name][swapped]}, rows, 2)) == "data", name
    assert known.difference({}, facts({**found, "x": found["x"][:, ::-1]}, rows, 2)) == "data"
