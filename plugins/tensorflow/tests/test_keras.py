"""Keras: the optimizer that is wrapped, the callbacks, XLA, a rank that is killed in fit."""

import os
import time
import warnings

import farandole_tensorflow as hvd
import farandole_tensorflow.keras as khvd
import numpy as np
import pytest
import tensorflow as tf
from digits_like import bits, data, keras, same_everywhere, state
from farandole._keras import agreement
from farandole.testing import RanksFailed, World, world
from fitting import compiled, fit, start, warnings_of

pytestmark = pytest.mark.timeout(300)
RATE = "learning_rate" if hasattr(keras, "KerasTensor") else "lr"  # in the logs of an epoch: with Keras 3, with Keras 2


# ---- The optimizer


def aggregated_already():
    """Gradients that the caller has reduced are not reduced again, however the caller says so."""
    legacy = keras.optimizers.legacy.SGD
    for kind, name, aggregated in (
        (keras.optimizers.SGD, "skip_gradients_aggregation", True),
        (legacy, "experimental_aggregate_gradients", False),
    ):
        for given in ([None, aggregated], {name: aggregated}):
            variable = tf.Variable([0.0])
            optimizer = khvd.DistributedOptimizer(kind(1.0))
            positional, named = ([], given) if isinstance(given, dict) else (given, {})
            optimizer.apply_gradients([(tf.constant([hvd.rank() + 1.0]), variable)], *positional, **named)
            assert variable.numpy().tolist() == [-hvd.rank() - 1.0]


if not hasattr(keras.optimizers.SGD, "apply"):  # Keras 3 has no such argument

    def test_gradients_are_not_reduced_twice():
        world(2).run(aggregated_already)


def keeps_its_state():
    """Wrapped in the middle of training it goes on as if it had not been."""
    variable, same = tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0])
    mine, plain = (keras.optimizers.Adam(0.1, name="mine") for _ in range(2))
    for _ in range(3):
        mine.apply_gradients([(tf.constant([0.5, -1.0]), variable)])
        plain.apply_gradients([(tf.constant([0.5, -1.0]), same)])
    before = bits(state(mine))
    wrapped = khvd.DistributedOptimizer(mine)
    assert wrapped is mine
    assert isinstance(wrapped, keras.optimizers.Adam)
    assert type(wrapped).__name__ == "Adam"
    assert wrapped.name == "mine"
    assert bits(state(wrapped)) == before
    for _ in range(3):
        wrapped.apply_gradients([(tf.constant([0.5, -1.0]), variable)])
        plain.apply_gradients([(tf.constant([0.5, -1.0]), same)])
    assert int(wrapped.iterations) == 6
    assert bits([variable]) == bits([same])
    wrapped.learning_rate = 0.25
    assert float(wrapped.learning_rate) == 0.25
    assert keras.optimizers.serialize(wrapped)["class_name"] == keras.optimizers.serialize(plain)["class_name"]
    assert {**wrapped.get_config(), "learning_rate": 0} == {**plain.get_config(), "learning_rate": 0, "name": "mine"}


def a_copy_by_configuration_is_plain():
    """As programs make a second optimizer of the same kind."""
    wrapped = khvd.DistributedOptimizer(keras.optimizers.Adam(0.5))
    copy = type(wrapped).from_config(wrapped.get_config())
    assert type(copy) is keras.optimizers.Adam
    assert float(copy.learning_rate) == 0.5
    variable = tf.Variable(1.0)
    khvd.DistributedOptimizer(copy).apply_gradients(pair for pair in [(tf.constant(float(hvd.rank())), variable)])
    assert same_everywhere(bits([variable]))


def training_step_by_step_eagerly():
    model = compiled(run_eagerly=True)
    fit(model, start())
    assert same_everywhere(bits(model.get_weights()))
    several = compiled(steps_per_execution=2)
    fit(several, start(), batches=4)
    assert same_everywhere(bits(several.get_weights()))


def refuses_what_is_no_optimizer():
    for wrong in ("sgd", 17, None, keras.layers.Dense(1)):
        with pytest.raises(ValueError, match="optimizer"):
            khvd.DistributedOptimizer(wrong)
        with pytest.raises(ValueError, match="optimizer"):
            hvd.DistributedOptimizer(wrong)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD())
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(optimizer)
    with pytest.raises(ValueError, match="already"):
        khvd.DistributedOptimizer(keras.mixed_precision.LossScaleOptimizer(optimizer))
    for op in (hvd.Min, hvd.Adasum):
        with pytest.raises(ValueError, match="op="):
            khvd.DistributedOptimizer(keras.optimizers.SGD(), op=op)
        with pytest.raises(ValueError, match="op="):
            hvd.DistributedOptimizer(keras.optimizers.SGD(), op=op)
    for wrong in ({"backward_passes_per_step": 0}, {"gradient_predivide_factor": -1.0}, {"groups": -1}):
        with pytest.raises(ValueError, match="must"):
            khvd.DistributedOptimizer(keras.optimizers.SGD(), **wrong)
    with pytest.raises(ValueError, match="groups"):
        khvd.DistributedOptimizer(keras.optimizers.SGD(), groups=["a"])
    with pytest.raises(TypeError, match="compression"):
        khvd.DistributedOptimizer(keras.optimizers.SGD(), compression=5)
    with pytest.raises(ValueError, match="GradientTape"):
        hvd.DistributedGradientTape(5)
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedGradientTape(hvd.DistributedGradientTape(tf.GradientTape()))


def groups_of_variables():
    model = compiled(seed=3)
    first, last = model.trainable_variables[0], model.trainable_variables[-1]
    for groups in ([[first, last]], [model.trainable_variables], 2):
        optimizer = khvd.DistributedOptimizer(keras.optimizers.SGD(0.0), groups=groups)
        model.compile(optimizer=optimizer, loss="mse", jit_compile=False)
        fit(model)
        assert int(optimizer.iterations) == 3


@pytest.mark.parametrize(
    "check",
    [
        keeps_its_state,
        a_copy_by_configuration_is_plain,
        training_step_by_step_eagerly,
        refuses_what_is_no_optimizer,
        groups_of_variables,
    ],
)
def test_the_optimizer(check):
    world(2).run(check)


# ---- Callbacks


def broadcasting():
    model = compiled()
    assert not same_everywhere(bits(model.get_weights()))
    root = hvd.broadcast_object(model.get_weights(), 1)
    seen = []
    look = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: seen.append(model.get_weights()))
    callback = khvd.callbacks.BroadcastGlobalVariablesCallback(1)
    fit(model, callback, look)
    assert bits(seen[0]) == bits(root), "before the first step"
    assert same_everywhere(bits(model.get_weights()) + bits(state(model.optimizer)))

    without = compiled()
    fit(without)
    assert not same_everywhere(bits(without.get_weights()))


def broadcasting_of_what_one_rank_has_loaded():
    """Rank 0's optimizer is in the middle of training; the others' has no state yet."""
    model = compiled(keras.optimizers.Adam(0.5 if hvd.rank() == 0 else 0.1))
    if hvd.rank() == 0:
        model.optimizer.build(model.trainable_variables)
        model.optimizer.iterations.assign(41)
    fit(model, start(), batches=2)
    assert int(model.optimizer.iterations) == 43
    assert float(model.optimizer.learning_rate) == 0.5
    assert same_everywhere(bits(model.get_weights()) + bits(state(model.optimizer)))


def broadcasting_of_a_model_without_variables_yet():
    keras.utils.set_random_seed(hvd.rank())
    layers = [keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(3)]
    model = keras.Sequential(layers)
    if hvd.rank() == 0:
        model.build((None, 6))  # as load_weights does
    model.compile(optimizer=khvd.DistributedOptimizer(keras.optimizers.Adam()), loss="mse", jit_compile=False)
    fit(model, start())
    assert same_everywhere(bits(model.get_weights()) + bits(state(model.optimizer)))


def broadcasting_leaves_local_variables():
    model = compiled(keras.optimizers.SGD(0.0))
    own, kept = model.get_weights(), model.weights[0]
    callback = khvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[kept])
    callback.register_local_var(model.weights[1])
    fit(model, callback)
    assert bits(model.get_weights()[:2]) == bits(own[:2])
    assert same_everywhere(bits(model.get_weights()[2:]))
    assert not same_everywhere(bits(model.get_weights()[:2]))


class OwnStep(keras.Sequential):
    """Its training step may reduce gradients by itself."""

    def train_step(self, inputs):
        return {"one": tf.constant(1.0)}


def an_optimizer_that_is_not_distributed():
    """Every callback says so once, and training goes on; not for what reduces gradients otherwise, or has none."""
    rate = khvd.callbacks.LearningRateScheduleCallback(0.5, 1.0)
    best = khvd.callbacks.BestModelCheckpoint("loss", filepath="unused.keras", save_freq=99)
    average = khvd.callbacks.MetricAverageCallback()
    for callback in (start(), average, rate, best, khvd.callbacks.StepScalarsCallback()):
        callback.set_model(compiled(wrap=False))
        callback.set_params({"steps": 3})
        [said] = warnings_of(callback.on_train_begin, "is not distributed")
        assert "compile the model with hvd.DistributedOptimizer" in said and "hvd.load_model" in said
    plain = compiled(wrap=False, run_eagerly=True)
    assert len(warnings_of(lambda: fit(plain, start(), average), "is not distributed")) == 1
    frozen = compiled(wrap=False, run_eagerly=True)
    frozen.trainable = False
    frozen.compile(optimizer="sgd", loss="mse", jit_compile=False, run_eagerly=True)
    own = OwnStep([keras.layers.Input((6,)), keras.layers.Dense(3)])
    own.compile(optimizer="sgd", loss="mse", jit_compile=False, run_eagerly=True)
    assert warnings_of(lambda: (fit(frozen, start(), average), fit(own, start(), average)), "is not distributed") == []
    assert same_everywhere(bits(frozen.get_weights()) + bits(own.get_weights()))


def metrics_are_averaged():
    logs = {"loss": 1.0 + hvd.rank(), "accuracy": np.float32(0.5 * hvd.rank()), "note": "text"}
    logs["several"] = tf.constant([[1.0, 2.0], [3.0, 4.0]]) * hvd.rank()
    khvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    several = logs.pop("several")
    assert logs == {"loss": 1.5, "accuracy": 0.25, "note": "text"}
    assert several.tolist() == [[0.5, 1.0], [1.5, 2.0]]
    with pytest.raises(hvd.MismatchError, match=r"rank 0 has several\[0\], several\[1\], and rank 1 has .*\[2\]"):
        khvd.callbacks.MetricAverageCallback().on_epoch_end(0, {"several": np.zeros(2 + hvd.rank())})
    other = {"loss": 1.0} if hvd.rank() else {"loss": 1.0, "val_loss": 2.0}
    with pytest.raises(hvd.MismatchError, match="rank 0 has loss, val_loss, and rank 1 has loss"):
        khvd.callbacks.MetricAverageCallback("").on_epoch_end(0, other)
    model = compiled(seed=1, metrics=[keras.metrics.F1Score(average=None)])
    seen = []
    later = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(dict(logs)))
    history = fit(model, start(), khvd.callbacks.MetricAverageCallback(), later, epochs=2).history
    assert np.shape(history["f1_score"]) == (2, 3)
    assert same_everywhere([str(seen), str(history)])
    assert [each["loss"] for each in seen] == history["loss"]


def ranks_with_different_numbers_of_batches():
    """All ranks hear of it before the first step; the averages of several batches may come out even."""
    model = compiled(seed=2)
    x, y, batch_size = data(2 + hvd.rank(), "float32")
    uneven = r"rank 0 has 2 batches in an epoch and rank 1 has 3.*steps_per_epoch.*repeat"
    rows = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)
    for callback in (start(), khvd.callbacks.MetricAverageCallback()):
        with pytest.raises(hvd.MismatchError, match=uneven):
            model.fit(rows, callbacks=[callback], verbose=0)
    optimizer = khvd.DistributedOptimizer(keras.optimizers.SGD(), backward_passes_per_step=2)
    model.compile(optimizer=optimizer, loss="mse", jit_compile=False)
    agreement.agree_on_batches(model, {"steps": 4 + hvd.rank()})
    agreement.agree_on_batches(model, {"steps": 4 * hvd.rank() or None})
    with pytest.raises(hvd.MismatchError, match="rank 0 has 5 batches in an epoch and rank 1 has 6"):
        agreement.agree_on_batches(model, {"steps": 5 + hvd.rank()})


class Rates(keras.callbacks.Callback):
    """Notes the learning rate of each step."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(float(self.model.optimizer.learning_rate))


def rates(*callbacks, optimizer=None, eagerly=True, **options):
    look = Rates()
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(3)])  # any will do
    optimizer = optimizer or keras.optimizers.SGD(9.0)
    model = compiled(optimizer, model=model, run_eagerly=eagerly)  # a graph takes longer than it runs
    history = fit(model, *callbacks, look, **{"epochs": 4, "batches": 2, **options}).history
    return look.seen, history


def learning_rates():
    schedule, warmup = khvd.callbacks.LearningRateScheduleCallback, khvd.callbacks.LearningRateWarmupCallback
    seen, history = rates(schedule(0.5, 0.125), eagerly=False)
    assert seen == [0.0625] * 8
    assert history[RATE] == [0.0625] * 4
    seen, _ = rates(schedule(0.5, lambda epoch: 1 / (1 + epoch), start_epoch=1, end_epoch=3))
    assert seen == [9.0, 9.0, 0.25, 0.25, *[pytest.approx(0.5 / 3)] * 4]
    seen, _ = rates(schedule(1.0, lambda epoch: epoch, staircase=False))
    assert seen == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5]
    seen, _ = rates(schedule(1.0, lambda epoch: epoch, staircase=False, steps_per_epoch=4), initial_epoch=2)
    assert seen == [2.0, 2.25, 3.0, 3.25]
    again = schedule(1.0, lambda epoch: epoch, staircase=False)  # which counts the steps of each fit anew
    assert rates(again, epochs=1)[0] == [0.0, 0.5]
    assert rates(again, epochs=1, batches=4)[0] == [0.0, 0.25, 0.5, 0.75]
    seen, history = rates(warmup(1.0, warmup_epochs=3, verbose=1))
    n, size = 6, hvd.size()
    assert seen[:6] == [pytest.approx(1 / size * ((i + 1) / n * (size - 1) + 1)) for i in range(6)]
    assert seen[5:] == [1.0] * 3
    assert history[RATE][-1] == 1.0
    decay = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    with pytest.raises(ValueError, match="LearningRateSchedule"):
        rates(schedule(1.0, 0.5), optimizer=keras.optimizers.SGD(decay))
    x, y, batch_size = data(2, "float32")
    endless = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size).filter(lambda *_: True)
    with pytest.raises(ValueError, match="steps_per_epoch"):
        compiled().fit(endless, callbacks=[warmup(1.0)], verbose=0)


def momentum_is_corrected():
    """The step after the rate has changed is mu * (new / old) * velocity - new * gradient."""
    for correct in (True, False):
        variable_model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        variable_model.set_weights([np.zeros([1, 1])])
        optimizer = khvd.DistributedOptimizer(keras.optimizers.SGD(1.0, momentum=0.5))
        variable_model.compile(optimizer=optimizer, loss=lambda y, p: p, jit_compile=False)  # whose gradient is 1
        schedule = khvd.callbacks.LearningRateScheduleCallback(
            1.0, lambda epoch: [1.0, 0.25][epoch], momentum_correction=correct
        )
        ones = np.ones([1, 1])
        variable_model.fit(ones, ones, epochs=2, callbacks=[schedule], verbose=0)
        velocity = 0.5 * -1.0 * (0.25 if correct else 1.0) - 0.25
        assert np.allclose(variable_model.get_weights()[0], -1.0 + velocity)


def the_best_model(folder):
    best = khvd.callbacks.BestModelCheckpoint
    name = "best.keras" if hasattr(keras.optimizers.SGD, "apply") else "best.h5"  # all that ModelCheckpoint can save
    path = os.path.join(folder, name)
    model = compiled(seed=4)
    callbacks = [start(), khvd.callbacks.MetricAverageCallback()]
    fit(model, *callbacks, best(monitor="loss", filepath=path), epochs=3)
    hvd.barrier()
    assert os.listdir(folder) == [name]
    assert keras.models.load_model(path, compile=False).count_params() == model.count_params()
    weights = best("loss", 0, True)
    with pytest.raises(ValueError, match="filepath"):
        fit(model, *callbacks, weights)
    weights.filepath = os.path.join(folder, "best.weights.h5")
    fit(model, *callbacks, weights)
    hvd.barrier()
    assert sorted(os.listdir(folder)) == [name, "best.weights.h5"]


@pytest.mark.parametrize(
    "check",
    [
        broadcasting,
        broadcasting_of_what_one_rank_has_loaded,
        broadcasting_of_a_model_without_variables_yet,
        broadcasting_leaves_local_variables,
        an_optimizer_that_is_not_distributed,
        metrics_are_averaged,
        ranks_with_different_numbers_of_batches,
        learning_rates,
        momentum_is_corrected,
    ],
)
def test_callbacks(check):
    world(2).run(check, timeout=120)


def test_only_rank_0_saves_the_best_model(tmp_path):
    world(2).run(the_best_model, str(tmp_path), timeout=120)


def alone():
    """In a world of one, everything is as without Farandole."""
    plain, ours = compiled(seed=1, wrap=False), compiled(seed=1)
    callbacks = [start(), khvd.callbacks.MetricAverageCallback()]
    fit(plain), fit(ours, *callbacks)
    assert bits(plain.get_weights()) == bits(ours.get_weights())


def test_a_world_of_one_trains_as_keras_does():
    world(1).run(alone)


# ---- XLA


def compiled_by_xla():
    model = compiled(seed=7, jit_compile=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="BroadcastGlobalVariablesCallback"):
        fit(model)
    again = compiled(seed=7, jit_compile=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit(again, start())
        fit(compiled(seed=7, jit_compile=True), start())
    ours = [each for each in said if "jit_compile" in str(each.message) and "Farandole" in str(each.message)]
    assert len(ours) == (hvd.rank() == 0)
    assert again.jit_compile is False
    assert same_everywhere(bits(again.get_weights()))

    @tf.function(jit_compile=True)
    def reduce(x):
        return hvd.allreduce(x)

    with pytest.raises(tf.errors.InvalidArgumentError, match="jit_compile=False"):
        reduce(tf.ones(2))
    assert hvd.allreduce(tf.ones(2), op=hvd.Sum).numpy().tolist() == [2, 2]


def test_the_broadcast_callback_turns_xla_off():
    world(2).run(compiled_by_xla, timeout=120)


# ---- A rank that dies


def killed_in_fit(folder):
    model = compiled(seed=8)

    class Kill(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 5 and hvd.rank() == 1:
                with open(os.path.join(folder, "killed"), "w") as file:
                    file.write(str(time.time()))
                os.kill(os.getpid(), 9)

    kind, said = None, ""
    try:
        fit(model, start(), Kill(), batches=50)
    except tf.errors.OpError as error:  # newer versions of TensorFlow make an InternalError of it, and say so
        kind, said = type(error).__name__, str(error)
    with open(os.path.join(folder, f"rank{hvd.rank()}"), "w") as file:
        file.write(f"{time.time()} {kind} {said}")


def test_a_rank_killed_in_fit_is_named_by_the_others_within_seconds(tmp_path):
    with World(3) as three, pytest.raises(RanksFailed):
        three.run(killed_in_fit, str(tmp_path), timeout=60)
    killed = float((tmp_path / "killed").read_text())
    for rank in (0, 2):
        when, kind, said = (tmp_path / f"rank{rank}").read_text().split(" ", 2)
        assert kind == "UnavailableError" or "originally returned UnavailableError" in said
        assert "rank 1" in said
        assert float(when) - killed < 5
