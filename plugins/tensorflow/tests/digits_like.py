"""A small model and its data, the same for the same seed in all versions of Keras; the ranks can import this."""

import farandole_tensorflow as hvd
import numpy as np
import tensorflow as tf

keras = tf.keras
GLOBAL_BATCH = 24  # divisible by 1, 2, 3 and 4


def network(dtype="float64", seed=11):
    """Two layers whose weights are drawn from `seed`: four variables, whose tracing is what a test's time goes into."""
    layers = [keras.layers.Dense(width, activation=how, dtype=dtype) for width, how in ((8, "tanh"), (3, None))]
    model = keras.Sequential([keras.layers.Input((6,), dtype=dtype), *layers])
    values = np.random.RandomState(seed)
    model.set_weights([values.uniform(-0.4, 0.4, each.shape) for each in model.get_weights()])
    return model


def data(batches, dtype="float64", whole=False):
    """This rank's rows of all global batches, batch after batch, and their number in a batch; or all rows."""
    inputs = np.random.RandomState(1000).randn(batches, GLOBAL_BATCH, 6)
    targets = np.stack([inputs.sum(-1), inputs[..., 0] * inputs[..., 1], np.sin(inputs[..., 2])], -1)
    size = GLOBAL_BATCH if whole else GLOBAL_BATCH // hvd.size()
    rows = slice(None) if whole else slice(hvd.rank() * size, (hvd.rank() + 1) * size)
    mine = [each[:, rows].reshape(-1, each.shape[-1]).astype(dtype) for each in (inputs, targets)]
    return mine[0], mine[1], size


def bits(variables):
    """A digest that differs when a single bit does."""
    return [np.asarray(each).tobytes() for each in variables]


def state(optimizer):
    """The optimizer's variables."""
    variables = optimizer.variables
    return list(variables if isinstance(variables, list | tuple) else variables())


def same_everywhere(value):
    """Returns whether all ranks have an equal value."""
    everywhere = hvd.allgather_object(value)
    return all(each == everywhere[0] for each in everywhere)
