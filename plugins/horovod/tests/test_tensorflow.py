"""horovod.tensorflow and horovod.keras: programs written for Horovod run on two ranks, by horovodrun."""

import farandole_tensorflow
import horovod.tensorflow as hvd
from by_horovodrun import run_by_two
from names_of_horovod import OF_TENSORFLOW, missing, of_another_package

TAPE = """
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
weights = tf.Variable([[1.0 + hvd.rank()], [2.0]])
hvd.broadcast_variables([weights], root_rank=0)
optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.5)
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(tf.matmul([[1.0 + hvd.rank(), 1.0]], weights))
tape = hvd.DistributedGradientTape(tape)
gradients = tape.gradient(loss, [weights])
optimizer.apply_gradients(zip(gradients, [weights]))
print("weights", weights.numpy().ravel().tolist(), flush=True)
"""
KERAS = """
import numpy as np
import keras
import horovod.keras as hvd

hvd.init()
keras.utils.set_random_seed(hvd.rank())
model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * hvd.size())), loss="mse")
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.2, warmup_epochs=1, verbose=0),
]
x = np.random.RandomState(hvd.rank()).rand(8, 2)
model.fit(x, x.sum(axis=1), batch_size=4, epochs=1, verbose=0, callbacks=callbacks)
both = hvd.allgather(np.concatenate([each.ravel() for each in model.get_weights()])[None])
print("equal", bool(np.allclose(both[0], both[1], atol=0)), flush=True)
"""


def test_no_name_is_missing():
    assert missing(OF_TENSORFLOW) == []


def test_names_are_those_of_farandole():
    ours = {"init", "Compressor", "gpu_available", "handle_average_backwards_compatibility", "vars_to_refs"}
    ours |= {"check_num_rank_power_of_2", "refs_to_vars"}
    assert of_another_package(OF_TENSORFLOW, ours) == []
    assert hvd.broadcast_object is farandole_tensorflow.broadcast_object  # not the core's, which has no session
    assert hvd.join is farandole_tensorflow.join


def test_a_script_with_a_tape_runs_unchanged(tmp_path):
    lines, _ = run_by_two(tmp_path / "train.py", TAPE)
    assert lines == [f"[{rank}] weights [0.25, 1.5]" for rank in (0, 1)]


def test_a_script_for_keras_runs_unchanged(tmp_path):
    lines, _ = run_by_two(tmp_path / "train.py", KERAS)
    assert lines == [f"[{rank}] equal True" for rank in (0, 1)]
