"""A user's program with Keras on TensorFlow. Read by type checkers, see type_checks.py; never run."""

import farandole_tensorflow.keras as hvd
import tensorflow as tf
from typing_extensions import assert_type


def fit(path: str, data: tf.Tensor) -> None:
    model = hvd.load_model(path)
    optimizer = tf.keras.optimizers.legacy.Adam(0.1)
    assert_type(hvd.DistributedOptimizer(optimizer), tf.keras.optimizers.legacy.Adam)
    start, average = hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()
    model.fit(data, data, callbacks=[start, average])


def fit_whatever_ends(path: str, data: hvd.elastic.Dataset) -> None:
    state = hvd.elastic.KerasState(hvd.load_model(path), data=data, epoch=0)
    update, commit = hvd.elastic.UpdateDataCallback(data), hvd.elastic.CommitStateCallback(state)
    hvd.load_model(path).fit(data.batches(), callbacks=[update, commit])


def variables() -> None:
    assert_type(hvd.broadcast_global_variables(0), tf.Operation | None)
