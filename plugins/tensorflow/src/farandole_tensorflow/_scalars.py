"""Scalars for TensorBoard by TensorFlow's own writers."""

from typing import Any

import farandole
import tensorflow as tf


class StepScalars(farandole.StepScalars):
    """Writes what steps cost to a writer of tf.summary, or to another writer of TensorBoard; see farandole.StepScalars.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     writer = tf.summary.create_file_writer(folder)
        ...     scalars = hvd.StepScalars(writer, every=10)
        ...     for _ in range(10):
        ...         scalars.step()
        ...     scalars.close()
        ...     writer.close()
    """

    def __init__(self, writer: Any = None, *, every: int = 50) -> None:
        """As farandole.StepScalars; `writer` is also what tf.summary.create_file_writer returns."""
        super().__init__(_Summaries(writer) if hasattr(writer, "as_default") else writer, every=every)


class _Summaries:
    """Scalars as tf.summary.scalar writes them, for which TensorBoard itself must be installed."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._metadata = tf.compat.v1.SummaryMetadata()
        self._metadata.plugin_data.plugin_name = "scalars"
        self._metadata.data_class = 1  # DATA_CLASS_SCALAR

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        with self._writer.as_default():
            tf.summary.write(tag, tf.constant(value, tf.float32), step=step, metadata=self._metadata)
