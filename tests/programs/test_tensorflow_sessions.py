"""Programs with sessions and hooks of TensorFlow 1, as Horovod's users wrote them, on two ranks.

Published packages with such programs need TensorFlow 1, so these two stand in for them.
"""

from pathlib import Path

import pytest
from published import on_two_ranks

pytestmark = pytest.mark.timeout(900)

# Layers, a learning rate by the number of ranks, and a checkpoint that only rank 0 writes.
MONITORED = """
import os
import numpy as np
import tensorflow.compat.v1 as tf
import horovod.tensorflow as hvd

tf.disable_eager_execution()
hvd.init()
tf.set_random_seed(hvd.rank())
image = tf.placeholder(tf.float32, [None, 64], name="image")
label = tf.placeholder(tf.int32, [None], name="label")
hidden = tf.layers.dense(image, 16, activation=tf.nn.relu)
logits = tf.layers.dense(tf.layers.dropout(hidden, rate=0.2, training=True), 2)
loss = tf.losses.softmax_cross_entropy(tf.one_hot(label, 2), logits)
global_step = tf.train.get_or_create_global_step()
optimizer = hvd.DistributedOptimizer(tf.train.AdamOptimizer(0.005 * hvd.size()))
train_op = optimizer.minimize(loss, global_step=global_step)
hooks = [
    hvd.BroadcastGlobalVariablesHook(0),
    tf.train.StopAtStepHook(last_step=40 // hvd.size()),
    tf.train.LoggingTensorHook(tensors={"step": global_step, "loss": loss}, every_n_iter=10),
]
config = tf.ConfigProto(intra_op_parallelism_threads=1)
folder = "checkpoints" if hvd.rank() == 0 else None
numbers = np.random.RandomState(hvd.rank())
losses = []
with tf.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks, config=config) as session:
    while not session.should_stop():
        images = numbers.randn(32, 64).astype("float32")
        feed = {image: images, label: (images[:, 0] > 0).astype("int32")}
        _, value, weights = session.run([train_op, loss, tf.trainable_variables()], feed_dict=feed)
        losses.append(value)
assert losses[-1] < losses[0]
print("result", sum(float(each.sum()) for each in weights), len(losses), "of", hvd.size(), flush=True)
"""
# An estimator, whose own session gets the hook; it trains, then evaluates what rank 0 has saved.
ESTIMATOR = """
import numpy as np
import tensorflow.compat.v1 as tf
import horovod.tensorflow as hvd

tf.disable_eager_execution()


def model_fn(features, labels, mode):
    logits = tf.layers.dense(tf.layers.dense(features["x"], 16, activation=tf.nn.relu), 2)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"classes": tf.argmax(logits, axis=1)})
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.TRAIN:
        optimizer = hvd.DistributedOptimizer(tf.train.MomentumOptimizer(0.05 * hvd.size(), 0.9))
        step = optimizer.minimize(loss, global_step=tf.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)
    accuracy = tf.metrics.accuracy(labels, tf.argmax(logits, axis=1))
    return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})


def inputs(seed, epochs):
    x = np.random.RandomState(seed).randn(512, 8).astype("float32")
    y = (x[:, 0] > 0).astype("int64")
    return tf.estimator.inputs.numpy_input_fn({"x": x}, y, batch_size=32, num_epochs=epochs, shuffle=False)


hvd.init()
config = tf.estimator.RunConfig(tf_random_seed=hvd.rank())
classifier = tf.estimator.Estimator(model_fn, model_dir="model" if hvd.rank() == 0 else None, config=config)
hook = hvd.BroadcastGlobalVariablesHook(0)
classifier.train(inputs(hvd.rank(), None), steps=60 // hvd.size(), hooks=[hook])
weights = sum(float(classifier.get_variable_value(name).sum()) for name in sorted(classifier.get_variable_names())
              if "dense" in name and "Momentum" not in name)
accuracy = classifier.evaluate(inputs(7, 1))["accuracy"]
assert accuracy > 0.8, accuracy
print("result", weights, accuracy, "of", hvd.size(), flush=True)
"""


@pytest.mark.parametrize(("text", "saved"), [(MONITORED, "checkpoints"), (ESTIMATOR, "model")])
def test_a_hook_gives_all_ranks_the_variables_of_rank_0(tmp_path: Path, text: str, saved: str) -> None:
    (tmp_path / "program.py").write_text(text)
    output = on_two_ranks("program.py", folder=tmp_path)
    (line,) = {line.partition("result ")[2] for line in output.splitlines() if "result " in line}
    assert line.endswith("of 2")
    assert (tmp_path / saved / "checkpoint").is_file()
