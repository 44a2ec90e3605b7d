"""Data for the tests of estimators, and a backend that needs no Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from farandole.engine import pack_call, unpack_call
from farandole.testing import world
from farandole_spark.ml.backend import Backend
from farandole_spark.ml.store import Store

ROWS = 100
_SECONDS = 300.0


class WorldBackend(Backend):
    """Runs ranks in the shared world of tests."""

    def __init__(self, ranks: int = 2) -> None:
        self._ranks = ranks

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[Any]:
        call = pack_call(fn, tuple(args), dict(kwargs or {}), "test")
        return world(self._ranks).run(_call, call, timeout=_SECONDS)

    def num_processes(self) -> int:
        return self._ranks


def _call(call: bytes) -> Any:
    fn, args, kwargs = unpack_call(call)
    return fn(*args, **kwargs)


def columns(rows: int = ROWS) -> dict[str, Any]:
    """Columns as arrays: x of four numbers, also as a to d; y, which depends on x; k, one of three classes; w, a
    weight; is_test, a third; text."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 4))
    number = np.arange(rows)
    found: dict[str, Any] = {"id": number, "x": x, **{name: x[:, place] for place, name in enumerate("abcd")}}
    found["y"] = x @ np.array([1.0, 2.0, -1.0, 0.5]) + 0.3
    found |= {"k": number % 3, "w": rng.uniform(0.5, 1.5, rows), "is_test": number % 3 == 0}
    return {**found, "text": np.array(["t" * (each % 5) for each in number])}


def write_columns(store: Store, number: int = 0, groups: int = 3) -> dict[str, Any]:
    """Write them as training data, and a part as validation data, into two files each. Returns the columns."""
    import pyarrow
    import pyarrow.parquet

    found = columns()
    table = pyarrow.table({name: list(each) if each.ndim > 1 else each for name, each in found.items()})
    half, chosen = len(table) // 2, table.filter(pyarrow.array(found["is_test"]))
    for folder, parts in (
        (store.get_train_data_path(number), [table.slice(0, half), table.slice(half)]),
        (store.get_val_data_path(number), [chosen.slice(0, 5), chosen.slice(5)]),
    ):
        Path(folder).mkdir(parents=True, exist_ok=True)
        for place, part in enumerate(parts):
            pyarrow.parquet.write_table(part, f"{folder}/part-{place}.parquet", row_group_size=len(part) // groups + 1)
    return found


def frame_of(spark: Any, rows: int = ROWS) -> tuple[Any, dict[str, Any]]:
    """The same as a DataFrame in two partitions, with x also as a vector v; and the columns as arrays."""
    from pyspark.ml.linalg import Vectors, VectorUDT
    from pyspark.sql import types

    found = columns(rows)
    double, number = types.DoubleType(), types.IntegerType()
    kinds: dict[str, Any] = {"id": number, "x": types.ArrayType(double), **dict.fromkeys("abcdy", double)}
    kinds |= {"k": number, "w": double, "is_test": types.BooleanType(), "text": types.StringType()}
    listed = [(*row, Vectors.dense(row[1])) for row in zip(*(found[name].tolist() for name in kinds), strict=True)]
    schema = types.StructType([types.StructField(name, kind) for name, kind in {**kinds, "v": VectorUDT()}.items()])
    return spark.createDataFrame(spark.sparkContext.parallelize(listed, 2), schema), found


def rows_of_step(step: int, batch: int, rows: int = ROWS) -> list[int]:
    """The rows that two ranks read in a step, without shuffling."""
    half, first = rows // 2, step * batch
    return [*range(first, first + batch), *range(half + first, half + first + batch)]


def files_of(folder: Path) -> list[str]:
    """All files below a folder, in order, but the data that `write_columns` has written."""
    found = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    own = ("intermediate_train_data.0", "intermediate_val_data.0")
    return sorted(name for name in found if not name.startswith(own))
