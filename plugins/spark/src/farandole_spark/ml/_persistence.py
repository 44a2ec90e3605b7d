"""`save` and `load` of estimators and models, alone and as stages of Spark ML's pipelines.

    PATH/metadata    Spark ML's own: class, uid, and the parameters that JSON can express
    PATH/objects     a Parquet file with one value: all other parameters, pickled together

Loading unpickles, so load from places that you trust, as with PyTorch's and Keras' own files. A store is saved without
its options, as these may be credentials.
"""

from __future__ import annotations

import json
from typing import Any

from farandole.engine import pack_call, unpack_call
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter

from farandole_spark._private import context_of, reset_uid, set_params
from farandole_spark.ml.store import Store

_NOT_SAVED = ("backend",)  # belongs to a session


class Persistent(MLReadable, MLWritable):  # type: ignore[misc]  # PySpark is not read
    """A class derived from Params with `save`, `write`, `load` and `read`."""

    def write(self) -> MLWriter:
        """A writer; `write().overwrite().save(path)` replaces what is there."""
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader:
        """A reader; `read().load(path)` is `load(path)`."""
        return _Reader(cls)

    def to_bytes(self, values: dict[str, Any]) -> bytes:
        """Pickle parameters. A framework may have its own way for its models."""
        return pack_call(dict, (), values, f"{type(self).__name__}.save")

    @classmethod
    def from_bytes(cls, packed: bytes) -> dict[str, Any]:
        """The parameters that `to_bytes` pickled."""
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
