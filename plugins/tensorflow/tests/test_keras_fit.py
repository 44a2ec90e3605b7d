"""What docs/guide/keras.md says: `fit` on 1, 2 and 4 ranks trains what one process trains with the rows of all.

FARANDOLE_LONG=1: TensorFlow's own strategy, too, which needs processes of its own.
"""

import json
import os
import socket
import subprocess
import sys

import farandole_tensorflow as hvd
import farandole_tensorflow.keras as khvd
import numpy as np
import pytest
from digits_like import bits, data, keras, same_everywhere
from farandole.testing import World, world

pytestmark = pytest.mark.timeout(300)
RANKS = [1, 2, 4]
BATCHES = 6  # of which four are executed together, and then two
# A setting -> how far weights may be from those of one process: the rounding of float32, float16 and bfloat16.
SETTINGS = {"float32": 1e-5, "steps_per_execution": 1e-5, "mixed_float16": 3e-3, "mixed_bfloat16": 3e-2}


def compiled(setting, optimizer, seed=None, jit_compile=False):
    """A model; with other weights on each rank unless there is a seed."""
    keras.utils.set_random_seed(hvd.rank() if seed is None else seed)
    keras.mixed_precision.set_global_policy(setting if setting.startswith("mixed") else "float32")
    try:
        layers = [keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)]
        layers += [keras.layers.Activation("linear", dtype="float32")]
        model = keras.Sequential([keras.layers.Input((6,)), *layers])
        steps = {"steps_per_execution": 4} if setting == "steps_per_execution" else {}
        model.compile(optimizer=optimizer, loss="mse", jit_compile=jit_compile, **steps)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    return model


class Looking(keras.callbacks.Callback):
    """A rank's own callback, which takes time."""

    def on_train_batch_end(self, batch, logs=None):
        assert all(np.isfinite(each).all() for each in self.model.get_weights())


def fit(model, epochs=2, **options):
    x, y, batch_size = data(BATCHES, "float32")
    callbacks = [khvd.callbacks.BroadcastGlobalVariablesCallback(0), khvd.callbacks.MetricAverageCallback()]
    callbacks += [Looking()] if hvd.rank() == 0 else []
    options = {"shuffle": False, "verbose": 0, "callbacks": callbacks, **options}
    return model.fit(x, y, batch_size=batch_size, epochs=epochs, **options)


def fit_in_one_process(model, epochs=2):
    """With the rows of all ranks."""
    x, y, batch_size = data(BATCHES, "float32", whole=True)
    return model.fit(x, y, batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0)


def trains_as_one_process(setting):
    ours = compiled(setting, khvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9)))
    history = fit(ours)
    assert same_everywhere(bits(ours.get_weights()))
    assert same_everywhere(history.history["loss"])
    alone = compiled(setting, keras.optimizers.SGD(0.05, momentum=0.9), seed=0)
    whole = fit_in_one_process(alone)
    tolerance = SETTINGS[setting]
    assert np.allclose(history.history["loss"], whole.history["loss"], atol=tolerance, rtol=tolerance)
    for mine, other in zip(ours.get_weights(), alone.get_weights(), strict=True):
        assert np.abs(mine - other).max() < tolerance


@pytest.mark.parametrize("ranks", RANKS)
def test_fit_trains_as_one_process_does(ranks):
    for setting in SETTINGS:
        world(ranks).run(trains_as_one_process, setting, timeout=120)


def an_overflow_on_one_rank_skips_the_step_on_all():
    """Keras wraps the optimizer by itself under mixed_float16."""
    model = compiled("mixed_float16", khvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    fit(model, epochs=1)
    scale, before = float(model.optimizer.dynamic_scale), bits(model.get_weights())
    x, y, batch_size = data(1, "float32")
    model.fit(x, y * (np.inf if hvd.rank() == hvd.size() - 1 else 1), batch_size=batch_size, verbose=0)
    assert bits(model.get_weights()) == before
    assert float(model.optimizer.dynamic_scale) == scale / 2
    assert same_everywhere(bits(model.get_weights()))


@pytest.mark.parametrize("ranks", RANKS)
def test_an_overflow_on_one_rank_skips_the_step_on_all(ranks):
    world(ranks).run(an_overflow_on_one_rank_skips_the_step_on_all, timeout=120)


def eager_steps():
    ours = compiled("float32", khvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9)))
    ours.run_eagerly = True
    fit(ours)
    alone = compiled("float32", keras.optimizers.SGD(0.05, momentum=0.9), seed=0)
    fit_in_one_process(alone)
    assert all(np.allclose(*both, atol=1e-5) for both in zip(ours.get_weights(), alone.get_weights(), strict=True))


def test_eager_steps_train_as_one_process_does():
    world(2).run(eager_steps, timeout=120)


def opt_in():
    hvd.use_xla()


def compiled_by_xla():
    optimizer = khvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9))
    ours = compiled("float32", optimizer, jit_compile=True)
    fit(ours)
    assert ours.jit_compile is True
    assert same_everywhere(bits(ours.get_weights()))
    alone = compiled("float32", keras.optimizers.SGD(0.05, momentum=0.9), seed=0)
    fit_in_one_process(alone)
    assert all(np.allclose(*both, atol=1e-5) for both in zip(ours.get_weights(), alone.get_weights(), strict=True))


@pytest.mark.parametrize("ranks", RANKS)
def test_steps_that_xla_compiles_train_as_one_process_does(ranks):
    with World(ranks) as some:
        some.run(opt_in)
        some.run(compiled_by_xla, timeout=180)


def saved(folder):
    model = compiled("float32", khvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    fit(model)
    if hvd.rank() == 0:
        model.save(os.path.join(folder, "model.keras"))
        plain = keras.models.load_model(os.path.join(folder, "model.keras")).optimizer
        assert type(plain) is keras.optimizers.Adam
    fit(model)
    return model.get_weights()


def continued(folder, weights):
    model = khvd.load_model(os.path.join(folder, "model.keras"))
    fit(model)
    assert same_everywhere(bits(model.get_weights()))
    assert int(model.optimizer.iterations) == 4 * BATCHES
    return max(float(np.abs(mine - other).max()) for mine, other in zip(model.get_weights(), weights, strict=True))


def test_a_saved_model_continues_on_any_number_of_ranks(tmp_path):
    weights = world(2).run(saved, str(tmp_path), timeout=120)[0]
    for ranks in RANKS:
        (farthest, *_) = world(ranks).run(continued, str(tmp_path), weights, timeout=120)
        assert farthest < 1e-4


STRATEGY = """
import json, os, sys
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
data = tf.data.Dataset.from_tensor_slices((np.ones((8, 1), "float32"), np.ones((8, 1), "float32"))).batch(4)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", jit_compile=False)
model.fit(data, verbose=0)
"""


if os.environ.get("FARANDOLE_LONG"):

    def test_fit_fails_under_the_strategy_of_tensorflow(tmp_path):
        """If this works one day, docs/guide/keras.md is wrong."""
        (tmp_path / "train.py").write_text(STRATEGY)
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
            workers = [f"127.0.0.1:{each.getsockname()[1]}" for each in (one, two)]
        started = []
        for index in (0, 1):
            cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
            variables = {**os.environ, "TF_CONFIG": json.dumps(cluster)}
            command = [sys.executable, str(tmp_path / "train.py")]
            started.append(subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True))
        errors = [each.communicate(timeout=240)[1] for each in started]
        assert all("PerReplica" in error and "unsupported type" in error for error in errors), errors
