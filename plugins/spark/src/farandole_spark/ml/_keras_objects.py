"""Converts objects of Keras to bytes and configurations, for ranks, tasks of Spark, and files."""

from __future__ import annotations

import io
import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import farandole
import keras
import numpy as np

Custom = Mapping[str, Any]
"""Classes and functions of the user's by name, as Keras' `custom_objects`."""


@dataclass(frozen=True)
class PackedModel:
    """A model in Keras' format, with its weights. `backend` is the framework that Keras used."""

    contents: bytes
    backend: str

    def load(self, custom: Custom | None) -> Any:
        """Return the model, not compiled. Raises FarandoleError if Keras uses another framework here."""
        here = keras.backend.backend()
        if here != self.backend:
            raise farandole.FarandoleError(
                f"the model was made with Keras on {self.backend}, and here Keras runs on {here}; set "
                f"KERAS_BACKEND={self.backend} for the executors: spark.executorEnv.KERAS_BACKEND."
            )
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "model.keras")
            file.write_bytes(self.contents)
            with keras.utils.custom_object_scope(dict(custom or {})):
                return keras.models.load_model(file, compile=False, safe_mode=False)


@dataclass(frozen=True)
class _Packed:
    """A loss, a metric or an optimizer as its configuration."""

    config: Any


def pack_model(model: Any) -> PackedModel:
    """Pack a model. Raises ArgumentError if Keras cannot save it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.keras")
        try:
            model.save(file)
        except Exception as error:
            raise farandole.ArgumentError(f"Keras cannot save the model: {error}") from error
        return PackedModel(file.read_bytes(), keras.backend.backend())


def pack(value: Any) -> Any:
    """Replace losses, metrics and optimizers in lists, tuples and dicts by their configurations."""
    if isinstance(value, keras.losses.Loss | keras.metrics.Metric | keras.optimizers.Optimizer):
        return _Packed(keras.saving.serialize_keras_object(value))
    if isinstance(value, list | tuple):
        return type(value)(pack(each) for each in value)
    if isinstance(value, dict):
        return {name: pack(each) for name, each in value.items()}
    return value


def unpack(value: Any, custom: Custom | None) -> Any:
    """Return new objects from the result of `pack`."""
    if isinstance(value, _Packed):
        return keras.saving.deserialize_keras_object(value.config, custom_objects=dict(custom or {}))
    if isinstance(value, list | tuple):
        return type(value)(unpack(each, custom) for each in value)
    if isinstance(value, dict):
        return {name: unpack(each, custom) for name, each in value.items()}
    return value


def identity_of(value: Any) -> Any:
    """Describe an object of Keras, such as a model, without weights and the numbers in generated names."""
    if isinstance(value, keras.Model):
        return [[type(each).__name__, [list(weight.shape) for weight in each.weights]] for each in value.layers]
    if isinstance(value, keras.losses.Loss | keras.metrics.Metric | keras.optimizers.Optimizer):
        return [type(value).__name__, {name: each for name, each in value.get_config().items() if name != "name"}]
    return value


def pack_arrays(arrays: Sequence[Any]) -> bytes:
    """Convert arrays to bytes that are safe to read. bfloat16, which NumPy lacks, becomes float32."""
    file = io.BytesIO()
    np.savez(file, *(each.astype("float32") if each.dtype.kind == "V" else each for each in arrays))
    return file.getvalue()


def unpack_arrays(packed: bytes) -> list[Any]:
    """Return the arrays that `pack_arrays` was given."""
    with np.load(io.BytesIO(packed)) as found:
        return list(found.values())


def shapes_of(shapes: Any) -> list[tuple[Any, ...]]:
    """Return Keras' shapes of a model's inputs or outputs as a list."""
    if isinstance(shapes, dict):
        return list(map(tuple, shapes.values()))
    return [tuple(shapes)] if shapes and not isinstance(shapes[0], list | tuple) else list(map(tuple, shapes))


def in_shape(values: Any, leading: int, shape: Sequence[int | None]) -> Any:
    """Values with rows of a shape, of which the first number is the batch, if they fit; `leading` dimensions stay."""
    needed = [int(each) for each in shape[1:] if each is not None]
    if len(needed) < len(shape) - 1 or math.prod(needed) != math.prod(values.shape[leading:]):
        return values
    return values.reshape(*values.shape[:leading], *needed)


def structured(parts: Iterable[Sequence[Any]]) -> tuple[Any, ...]:
    """Inputs, labels and, if there are any, weights: a single array as itself, several as a tuple."""
    return tuple(part[0] if len(part) == 1 else tuple(part) for part in parts if part)
