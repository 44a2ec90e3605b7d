"""Keras 3 on PyTorch: the optimizer that is wrapped, the callbacks, saved models, a rank that is killed in fit."""

import os
import pickle
import subprocess
import sys
import time
import warnings

os.environ["KERAS_BACKEND"] = "torch"  # before Keras is imported; the ranks import this file, too

import farandole_torch as hvd
import farandole_torch.keras as khvd
import keras
import numpy as np
import pytest
import torch
from farandole.testing import RanksFailed, World, world

pytestmark = pytest.mark.timeout(300)
GLOBAL_BATCH = 24


def network(seed):
    """Three layers whose weights are drawn from `seed`."""
    layers = [keras.layers.Dense(width, activation=how) for width, how in ((8, "tanh"), (8, "tanh"), (3, None))]
    model = keras.Sequential([keras.layers.Input((6,)), *layers])
    values = np.random.RandomState(seed)
    model.set_weights([values.uniform(-0.4, 0.4, each.shape) for each in model.get_weights()])
    return model


def compiled(optimizer=None, seed=None, wrap=True, how=None, **options):
    """A model; with other weights on each rank unless there is a seed."""
    model = network(khvd.rank() if seed is None else seed)
    optimizer = optimizer or keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer = khvd.DistributedOptimizer(optimizer, **(how or {})) if wrap else optimizer
    model.compile(optimizer=optimizer, **{"loss": "mse", **options})
    return model


def data(batches):
    """This rank's rows of all global batches, batch after batch."""
    inputs = np.random.RandomState(1000).randn(batches, GLOBAL_BATCH, 6).astype("float32")
    targets = np.stack([inputs.sum(-1), inputs[..., 0] * inputs[..., 1], np.sin(inputs[..., 2])], -1)
    rows = slice(khvd.rank() * GLOBAL_BATCH // khvd.size(), (khvd.rank() + 1) * GLOBAL_BATCH // khvd.size())
    return *(each[:, rows].reshape(-1, each.shape[-1]) for each in (inputs, targets)), GLOBAL_BATCH // khvd.size()


def fit(model, *callbacks, epochs=1, batches=3, **options):
    x, y, batch_size = data(batches)
    options = {"batch_size": batch_size, "shuffle": False, "verbose": 0, **options}
    return model.fit(x, y, epochs=epochs, callbacks=list(callbacks), **options)


def start(root=0):
    return khvd.callbacks.BroadcastGlobalVariablesCallback(root)


def bits(values):
    return [keras.ops.convert_to_numpy(each).tobytes() for each in values]


def state(model):
    return bits([*model.weights, *model.optimizer.variables])


def same_everywhere(value):
    everywhere = khvd.allgather_object(value)
    return all(each == everywhere[0] for each in everywhere)


# ---- The optimizer


def trained(kind, options, how):
    """Weights after three epochs."""
    model = compiled(kind(0.01, **options), seed=3, how=how)
    fit(model, start(), epochs=3)
    assert same_everywhere(state(model))
    return model.get_weights()


@pytest.mark.parametrize(
    ("kind", "options", "how"),
    [
        (keras.optimizers.Adam, {}, {"groups": 2, "gradient_predivide_factor": 2.0}),
        (keras.optimizers.SGD, {"momentum": 0.9, "clipnorm": 0.05}, {}),
        (keras.optimizers.Adam, {}, {"backward_passes_per_step": 3, "average_aggregated_gradients": True}),
    ],
    ids=["grouped", "clipped", "accumulated"],
)
def test_two_ranks_train_as_one(kind, options, how):
    alone, together = (world(ranks).run(trained, kind, options, how, timeout=120)[0] for ranks in (1, 2))
    for mine, theirs in zip(together, alone, strict=True):
        assert np.allclose(mine, theirs, rtol=0, atol=2e-5)


def trains_as_keras_alone():
    plain, ours = compiled(seed=1, wrap=False), compiled(seed=1)
    fit(plain), fit(ours, start(), khvd.callbacks.MetricAverageCallback())
    assert state(plain) == state(ours)


def test_a_world_of_one_trains_as_keras_does():
    world(1).run(trains_as_keras_alone)


def applied(gradients, wrapped=None, **how):
    """The values after a step of SGD with rate 1 on variables that are 0, one for each gradient."""
    variables = [keras.Variable(np.zeros(2, "float32")) for _ in gradients]
    optimizer = wrapped or khvd.DistributedOptimizer(keras.optimizers.SGD(1.0), **how)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return [each.numpy().tolist() for each in variables]


def gradients_of_ones_own():
    mine = torch.full((2,), float(khvd.rank()))
    assert applied([mine, mine], op=khvd.Sum) == [[-1, -1]] * 2
    assert mine.tolist() == [khvd.rank()] * 2, "what the caller owns is not written"
    assert applied([None if khvd.rank() else torch.ones(2)]) == [[-0.5, -0.5]], "None counts as zeros"
    assert applied([torch.ones(2).to_sparse()], sparse_as_dense=True) == [[-1, -1]]
    with pytest.raises(ValueError, match="sparse_as_dense"):
        applied([torch.ones(2).to_sparse()])
    half = torch.full((2,), 1.0 + 2.0**-12)
    assert applied([half], compression=khvd.Compression.fp16) == [[-1, -1]]


def some_ranks_only():
    pair = khvd.add_process_set([0, 1])
    mine = torch.full((2,), float(khvd.rank()))
    expected = 0.5 if pair.included() else khvd.rank()
    assert applied([mine], process_set=pair) == [[-expected] * 2]
    khvd.remove_process_set(pair)


def layers_of_ones_own():
    for options, factor in (({}, 1 / khvd.size()), ({"scale_local_gradients": False}, 1.0)):
        model = network(5)
        first, before = model.layers[0], model.get_weights()
        optimizer = khvd.PartialDistributedOptimizer(keras.optimizers.SGD(1.0), local_layers=first, **options)
        gradients = [torch.full(tuple(each.shape), float(khvd.rank())) for each in model.trainable_variables]
        optimizer.apply(gradients, model.trainable_variables)
        moved = [float(old.flat[0] - new.flat[0]) for old, new in zip(before, model.get_weights(), strict=True)]
        average = (khvd.size() - 1) / 2
        assert moved == pytest.approx([khvd.rank() * factor] * 2 + [average] * 4, abs=1e-6)


def overflown_gradients():
    """All ranks skip a step that one of them must skip, however the scaling is put."""
    for around in (True, False):
        inner = keras.optimizers.SGD(1.0)
        if around:
            optimizer = keras.optimizers.LossScaleOptimizer(khvd.DistributedOptimizer(inner), initial_scale=4.0)
        else:
            optimizer = khvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(inner, initial_scale=4.0))
        bad = torch.full((2,), float("inf") if khvd.rank() else 4.0)
        variable = keras.Variable(np.zeros(2, "float32"))
        optimizer.apply([bad], [variable])
        assert variable.numpy().tolist() == [0, 0]
        assert float(optimizer.dynamic_scale) == 2.0
        optimizer.apply([torch.full((2,), 2.0 * khvd.rank())], [variable])
        assert variable.numpy().tolist() == [-0.5, -0.5]


def keeps_its_state():
    mine = keras.optimizers.Adam(0.5, name="mine")
    mine.build([keras.Variable(np.ones(2, "float32"))])
    mine.iterations.assign(5)
    wrapped = khvd.DistributedOptimizer(mine)
    assert wrapped is mine
    assert isinstance(wrapped, keras.optimizers.Adam)
    assert (type(wrapped).__name__, wrapped.name, int(wrapped.iterations)) == ("Adam", "mine", 5)
    plain = keras.optimizers.Adam(0.5)
    assert keras.optimizers.serialize(wrapped)["class_name"] == keras.optimizers.serialize(plain)["class_name"]
    assert keras.optimizers.serialize(wrapped)["module"] == keras.optimizers.serialize(plain)["module"]
    copy = type(wrapped).from_config(wrapped.get_config())
    assert type(copy) is type(plain)


def refuses():
    for wrong in ("sgd", 17, None, keras.layers.Dense(1), torch.optim.SGD([torch.ones(1)], lr=1.0)):
        with pytest.raises(ValueError, match="optimizer of Keras"):
            khvd.DistributedOptimizer(wrong)
    with pytest.raises(ValueError, match="already"):
        khvd.DistributedOptimizer(khvd.DistributedOptimizer(keras.optimizers.SGD()))
    with pytest.raises(ValueError, match="op="):
        khvd.DistributedOptimizer(keras.optimizers.SGD(), op=khvd.Adasum)
    for wrong in ({"backward_passes_per_step": 0}, {"gradient_predivide_factor": -1.0}, {"groups": -1}):
        with pytest.raises(ValueError, match="must"):
            khvd.DistributedOptimizer(keras.optimizers.SGD(), **wrong)
    with pytest.raises(ValueError, match="groups"):
        khvd.DistributedOptimizer(keras.optimizers.SGD(), groups=["a"])
    with pytest.raises(TypeError, match="compression"):
        khvd.DistributedOptimizer(keras.optimizers.SGD(), compression=5)
    with pytest.raises(ValueError, match="local_layers"):
        khvd.PartialDistributedOptimizer(keras.optimizers.SGD(), local_layers=[5])
    with pytest.raises(khvd.MismatchError, match="shape"):
        applied([torch.ones(2 + khvd.rank())])
    assert applied([torch.ones(2)]) == [[-1, -1]], "the job goes on"


@pytest.mark.parametrize(
    "check",
    [gradients_of_ones_own, overflown_gradients, keeps_its_state, refuses, layers_of_ones_own],
)
def test_the_optimizer(check):
    world(2).run(check, timeout=120)


def test_an_optimizer_of_some_ranks():
    world(3).run(some_ranks_only, timeout=120)


# ---- Callbacks


def broadcasting():
    model = compiled(keras.optimizers.Adam(0.5 if khvd.rank() else 0.1))
    if khvd.rank() == 1:  # as if it had loaded them
        model.optimizer.build(model.trainable_variables)
        model.optimizer.iterations.assign(41)
    root = khvd.broadcast_object(model.get_weights(), 1)
    seen = []
    look = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: seen.append(model.get_weights()))
    fit(model, start(1), look)
    assert bits(seen[0]) == bits(root), "before the first step"
    assert same_everywhere(state(model))
    assert (int(model.optimizer.iterations), float(model.optimizer.learning_rate)) == (44, 0.5)

    without = compiled()
    fit(without)
    assert not same_everywhere(state(without))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(compiled(wrap=False), start(), khvd.callbacks.MetricAverageCallback())
    said = [str(each.message) for each in caught if "is not distributed" in str(each.message)]
    assert len(said) == (khvd.rank() == 0)
    x, y, batch_size = data(2 + khvd.rank())
    with pytest.raises(khvd.MismatchError, match=r"rank 0 has 2 batches in an epoch and rank 1 has 3.*steps_per_epoch"):
        without.fit(x, y, batch_size=batch_size, callbacks=[start()], verbose=0)


def metrics_are_averaged():
    logs = {"loss": 1.0 + khvd.rank(), "accuracy": np.float32(0.5 * khvd.rank()), "note": "text"}
    logs["several"] = torch.tensor([1.0, 2.0]) * khvd.rank()
    khvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    assert logs.pop("several").tolist() == [0.5, 1.0]
    assert logs == {"loss": 1.5, "accuracy": 0.25, "note": "text"}
    history = fit(compiled(seed=1), start(), khvd.callbacks.MetricAverageCallback(), epochs=2).history
    assert same_everywhere(history)


def learning_rates():
    seen = []

    class Rates(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(float(self.model.optimizer.learning_rate))

    warmup = khvd.callbacks.LearningRateWarmupCallback(1.0, warmup_epochs=3, verbose=1)
    plateau = keras.callbacks.ReduceLROnPlateau("loss", patience=99)  # which logs the rate, too
    schedule = khvd.callbacks.LearningRateScheduleCallback(1.0, lambda epoch: 2.0**-epoch, start_epoch=3)
    history = fit(compiled(keras.optimizers.SGD(9.0)), warmup, schedule, plateau, Rates(), epochs=5, batches=2).history
    assert seen[:6] == [pytest.approx((i + 1) / 6 * 0.5 + 0.5) for i in range(6)]
    assert seen[6:] == [0.125, 0.125, 0.0625, 0.0625]
    assert history["learning_rate"][2:] == [1.0, 0.125, 0.0625] and "lr" not in history


def momentum_is_corrected():
    """The step after the rate has changed is mu * (new / old) * velocity - new * gradient."""
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.zeros([1, 1])])
    optimizer = khvd.DistributedOptimizer(keras.optimizers.SGD(1.0, momentum=0.5))
    model.compile(optimizer=optimizer, loss=lambda y, p: p)  # whose gradient is 1
    schedule = khvd.callbacks.LearningRateScheduleCallback(1.0, lambda epoch: [1.0, 0.25][epoch])
    ones = np.ones([1, 1])
    model.fit(ones, ones, epochs=2, callbacks=[schedule], verbose=0)
    assert np.allclose(model.get_weights()[0], -1.0 - 0.5 * 0.25 - 0.25)


@pytest.mark.parametrize("check", [broadcasting, metrics_are_averaged, learning_rates, momentum_is_corrected])
def test_callbacks(check):
    world(2).run(check, timeout=120)


def the_best_model(folder):
    best = khvd.callbacks.BestModelCheckpoint(monitor="loss", filepath=os.path.join(folder, "best.keras"))
    model = compiled(seed=4)
    fit(model, start(), khvd.callbacks.MetricAverageCallback(), best, epochs=3)
    khvd.barrier()
    assert os.listdir(folder) == ["best.keras"]
    assert keras.models.load_model(best.filepath, compile=False).count_params() == model.count_params()


def test_only_rank_0_saves_the_best_model(tmp_path):
    world(2).run(the_best_model, str(tmp_path), timeout=120)


# ---- Saved models


def saved_and_loaded(folder):
    """Training goes on after load_model as if it had not been interrupted."""
    path = os.path.join(folder, "model.keras")
    straight, interrupted = (compiled(keras.optimizers.Adam(0.01), seed=5) for _ in range(2))
    fit(straight, start()), fit(straight)
    fit(interrupted, start())
    if khvd.rank() == 0:
        interrupted.save(path)
    khvd.barrier()
    theirs = keras.models.load_model(path)  # what a program without Farandole has
    loaded = khvd.load_model(path)
    assert type(loaded.optimizer).__name__ == "Adam"
    assert state(loaded) == state(theirs) == state(interrupted)
    fit(loaded, start())
    assert state(loaded) == state(straight)
    fit(khvd.load_model(path, compression=khvd.Compression.bf16, backward_passes_per_step=2), start())


def test_a_saved_model_goes_on_where_it_was(tmp_path):
    world(2).run(saved_and_loaded, str(tmp_path), timeout=120)


# ---- Values, other backends, a rank that dies


def values():
    rank, size = khvd.rank(), khvd.size()
    assert khvd.allreduce(float(rank), op=khvd.Sum) == size * (size - 1) / 2
    assert khvd.allgather(np.array([rank])).tolist() == list(range(size))
    assert khvd.broadcast([1.0 + rank], 0).tolist() == [1.0]
    assert khvd.reducescatter(np.arange(float(size)), op=khvd.Sum).tolist() == [float(rank * size)]
    mine = torch.tensor([1.0 + rank, 1.0])
    results = [
        khvd.allreduce(mine, op=khvd.Sum),
        khvd.allgather(mine),
        khvd.broadcast(mine, 1),
        khvd.reducescatter(mine, op=khvd.Sum),
        khvd.allreduce(keras.Variable([1.0 + rank]), op=khvd.Sum),
    ]
    assert all(isinstance(each, torch.Tensor) for each in results), "tensors in, tensors out"
    assert [each.tolist() for each in results] == [[3, 2], [1, 1, 2, 1], [2, 1], [[3], [2]][rank], [3]]


def test_values():
    world(2).run(values)


def test_a_rank_gets_a_gpu_of_its_own_as_without_keras():
    assert khvd.init is hvd.init  # see test_gpus.py


def test_farandole_keras_is_this_module():
    import farandole.keras

    assert farandole.keras.DistributedOptimizer is khvd.DistributedOptimizer
    assert set(farandole.keras.__all__) == set(khvd.__all__)
    assert khvd.callbacks.__all__ and set(khvd.__all__) >= {"callbacks", "load_model", "allreduce", "rank"}


@pytest.mark.parametrize("name", ["DistributedOptimizer", "PartialDistributedOptimizer", "load_model", "allreduce"])
def test_functions_can_be_pickled(name):
    assert pickle.loads(pickle.dumps(getattr(khvd, name))) == getattr(khvd, name)


def test_callbacks_are_a_module():
    from farandole_torch.keras import callbacks

    assert callbacks is khvd.callbacks
    assert pickle.loads(pickle.dumps(callbacks.MetricAverageCallback)) is callbacks.MetricAverageCallback


def test_another_backend_of_keras_is_refused():
    environment = {**os.environ, "KERAS_BACKEND": "numpy"}
    command = [sys.executable, "-c", "import farandole_torch.keras"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "KERAS_BACKEND=torch" in done.stderr


def killed_in_fit(folder):
    class Kill(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 5 and khvd.rank() == 1:
                with open(os.path.join(folder, "killed"), "w") as file:
                    file.write(str(time.time()))
                os.kill(os.getpid(), 9)

    with pytest.raises(khvd.PeerLostError, match="rank 1"):
        fit(compiled(seed=8), start(), Kill(), batches=50)
    with open(os.path.join(folder, f"rank{khvd.rank()}"), "w") as file:
        file.write(str(time.time()))


def test_a_rank_killed_in_fit_is_named_by_the_other_within_seconds(tmp_path):
    with World(2) as two, pytest.raises(RanksFailed):
        two.run(killed_in_fit, str(tmp_path), timeout=60)
    killed = float((tmp_path / "killed").read_text())
    assert float((tmp_path / "rank0").read_text()) - killed < 5
