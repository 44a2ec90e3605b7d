"""What a rank needs from TensorFlow, if Keras uses it: a dataset, and its GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from farandole_spark.ml._keras_objects import structured

Blocks = Iterator[tuple[list[Any], list[Any], list[Any]]]


def dataset_of(make: Callable[[], Blocks]) -> Any:
    """Make a `tf.data.Dataset` of batches from blocks of several batches, so that Python is called once per block."""
    first = make()
    block = next(first)
    kept: list[Any] = [block, first]  # for the first iteration

    def blocks() -> Iterator[Any]:
        if kept:
            yield structured(kept[0])
            source = kept[1]
            kept.clear()
        else:
            source = make()
        for each in source:
            yield structured(each)

    def specification(array: Any) -> Any:
        return tf.TensorSpec([None, None, *array.shape[2:]], tf.as_dtype(array.dtype))

    signature = tf.nest.map_structure(specification, structured(block))
    found = tf.data.Dataset.from_generator(blocks, output_signature=signature)
    return found.flat_map(lambda *each: tf.data.Dataset.from_tensor_slices(each)).prefetch(2)


def choose_gpu(number: int | None) -> None:
    """Use only this GPU, or none. Call it before TensorFlow's first operation."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices([] if number is None else gpus[number % len(gpus)], "GPU")
