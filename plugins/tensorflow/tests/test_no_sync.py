"""no_sync has no place in TensorFlow; the ways that its error names are those of one batch of all rows."""

import farandole_tensorflow as hvd
import farandole_tensorflow.keras as hvd_keras
import numpy as np
import pytest
import tensorflow as tf
from farandole.testing import world

pytestmark = pytest.mark.timeout(180)
BATCHES, ROWS = 3, 4


def part(rank, batch):
    """The rows of one rank's batch, which no other has."""
    return np.sin(np.arange(float(ROWS * 4)).reshape(ROWS, 4) + 100 * rank + 10 * batch)


def loss_of(weight, rows):
    return tf.reduce_mean(tf.square(tf.linalg.matvec(tf.constant(rows), weight) - 1))


def start():
    return tf.Variable(np.full(4, 0.25)), tf.keras.optimizers.SGD(0.5)


def gradient_of(weight, rows):
    with tf.GradientTape() as tape:
        loss = loss_of(weight, rows)
    return tape.gradient(loss, weight)


def of_one_process(ranks):
    weight, optimizer = start()
    rows = np.concatenate([part(rank, batch) for rank in range(ranks) for batch in range(BATCHES)])
    for _ in range(3):
        optimizer.apply_gradients([(gradient_of(weight, rows), weight)])
    return weight.numpy().tolist()


def by_sums():
    """A plain tape's gradients, added up, go to the distributed optimizer."""
    weight, optimizer = start()
    optimizer = hvd.DistributedOptimizer(optimizer)
    for _ in range(3):
        total = sum(gradient_of(weight, part(hvd.rank(), batch)) / BATCHES for batch in range(BATCHES))
        optimizer.apply_gradients([(total, weight)])
    return weight.numpy().tolist()


def by_passes():
    weight, optimizer = start()
    optimizer = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=BATCHES, average_aggregated_gradients=True)
    for _ in range(3):
        for batch in range(BATCHES):
            optimizer.apply_gradients([(gradient_of(weight, part(hvd.rank(), batch)), weight)])
    return weight.numpy().tolist()


@pytest.mark.parametrize("train", [by_sums, by_passes])
def test_steps_are_those_of_one_process_with_all_rows(train):
    expected = world(1).run(of_one_process, 2)[0]
    for weight in world(2).run(train):
        assert np.allclose(weight, expected, rtol=0, atol=1e-12)


def test_no_sync_names_them():
    with pytest.raises(hvd.ArgumentError, match=r"backward_passes_per_step=n\), or add up the gradients of a plain"):
        hvd.no_sync(tf.keras.optimizers.SGD(0.1))
    with pytest.raises(hvd.ArgumentError, match=r"backward_passes_per_step=n\), which adds up"):
        hvd_keras.no_sync(tf.keras.optimizers.SGD(0.1))


def metrics():
    found = hvd.average_metrics({"tensor": tf.constant(1.0 + hvd.rank()), "variable": tf.Variable([2.0])})
    with pytest.raises(hvd.ArgumentTypeError, match=r"'loss' is a .*: reduce tensors .* outside of graphs"):
        tf.function(lambda loss: hvd.average_metrics({"loss": loss}))(tf.constant(1.0))
    return found


def test_tensors_of_one_element_are_metrics_outside_of_graphs():
    assert world(2).run(metrics) == [{"tensor": 1.5, "variable": 2.0}] * 2
