"""Saves and loads estimators and models, alone and as stages of Spark ML's pipelines.

    PATH/metadata    Spark ML's metadata: class, uid, and the parameters that JSON can express
    PATH/objects     a Parquet file with one value: all other parameters, pickled together

Loading unpickles, so load only files that you trust, as with files of PyTorch and Keras. A store is saved without its
options, which may be credentials.
"""

from __future__ import annotations

import json
from typing import Any

from farandole.engine import pack_call, unpack_call
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter

from farandole_spark._private import context_of, reset_uid, set_params
from farandole_spark.ml.store import Store

_NOT_SAVED = ("backend",)  # because it belongs to a session


class Persistent(MLReadable, MLWritable):  # type: ignore[misc]  # PySpark is not read
    """Adds `save`, `write`, `load` and `read` to a class derived from Params."""

    def write(self) -> MLWriter:
        """Return a writer. `write().overwrite().save(path)` replaces an existing file."""
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader:
        """Return a reader. `read().load(path)` is the same as `load(path)`."""
        return _Reader(cls)

    def to_bytes(self, values: dict[str, Any]) -> bytes:
        """Pickle parameters. Derived classes may handle a framework's models in another way."""
        return pack_call(dict, (), values, f"{type(self).__name__}.save")

    @classmethod
    def from_bytes(cls, packed: bytes) -> dict[str, Any]:
        """Return the parameters that `to_bytes` pickled."""
        _, _, values = unpack_call(packed)
        return values


class _Writer(MLWriter):  # type: ignore[misc]
    def __init__(self, instance: Persistent) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:
        session = self.sparkSession
        simple: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for param in self._instance.params:
            if self._instance.isSet(param) and param.name not in _NOT_SAVED:
                value = self._instance.getOrDefault(param)
                value = value.without_options() if isinstance(value, Store) else value
                (simple if _is_json(value) else others)[param.name] = value
        packed = bytearray(self._instance.to_bytes(others))
        DefaultParamsWriter.saveMetadata(self._instance, path, context_of(session), paramMap=simple)
        session.createDataFrame([(packed,)], "objects binary").coalesce(1).write.parquet(f"{path}/objects")


class _Reader(MLReader):  # type: ignore[misc]
    def __init__(self, kind: type[Persistent]) -> None:
        super().__init__()
        self._kind = kind

    def load(self, path: str) -> Any:
        session = self.sparkSession
        metadata = DefaultParamsReader.loadMetadata(path, context_of(session))
        instance = self._kind()
        reset_uid(instance, metadata["uid"])
        DefaultParamsReader.getAndSetParams(instance, metadata)
        packed = session.read.parquet(f"{path}/objects").head()["objects"]
        return set_params(instance, **self._kind.from_bytes(bytes(packed)))


def _is_json(value: object) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False
