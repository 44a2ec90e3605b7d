"""Optimizers, tapes and Keras as Horovod's users know them: names, arguments in their order, defaults, meanings."""

import inspect

import farandole_tensorflow as hvd
import farandole_tensorflow.keras as khvd
import numpy as np
import pytest
import tensorflow as tf
from digits_like import keras
from farandole.testing import world

pytestmark = pytest.mark.timeout(180)


def parameters(function):
    """Names of the arguments, with their defaults where they have one."""
    return [
        name if each.default is inspect.Parameter.empty else (name, each.default)
        for name, each in inspect.signature(function).parameters.items()
        if each.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    ]


def defaults(text):
    """`a, b=1` as `parameters` gives it."""
    namespace = {"none": hvd.Compression.none, "Average": hvd.Average}
    return parameters(eval(f"lambda {text}: None", namespace))


_PREDIVIDED = "gradient_predivide_factor=1.0"
_LAST = "process_set=None, scale_local_gradients=True"

SIGNATURES = [
    (
        hvd.DistributedOptimizer,
        "optimizer, name=None, use_locking=False, device_dense='', device_sparse='', compression=none, "
        f"sparse_as_dense=False, backward_passes_per_step=1, op=Average, {_PREDIVIDED}, "
        f"average_aggregated_gradients=False, num_groups=0, groups=None, {_LAST}",
    ),
    (
        hvd.DistributedGradientTape,
        "gradtape, device_dense='', device_sparse='', compression=none, sparse_as_dense=False, op=Average, "
        f"{_PREDIVIDED}, num_groups=0, groups=None, {_LAST}",
    ),
    (hvd.SyncBatchNormalization, "fused=False"),
    (
        khvd.DistributedOptimizer,
        "optimizer, name=None, device_dense='', device_sparse='', compression=None, sparse_as_dense=False, "
        f"{_PREDIVIDED}, op=Average, backward_passes_per_step=1, average_aggregated_gradients=False, num_groups=0, "
        f"groups=None, {_LAST}",
    ),
    (
        khvd.allreduce,
        "value, name=None, average=None, prescale_factor=1.0, postscale_factor=1.0, op=None, compression=None",
    ),
    (khvd.allgather, "value, name=None"),
    (khvd.broadcast, "value, root_rank, name=None"),
    (khvd.reducescatter, "value, name=None, op=Average"),
    (khvd.broadcast_global_variables, "root_rank"),
    (
        khvd.load_model,
        "filepath, custom_optimizers=None, custom_objects=None, compression=None, legacy_opts=False",
    ),
    (khvd.callbacks.BroadcastGlobalVariablesCallback, "root_rank, device='', local_variables=None"),
    (khvd.callbacks.MetricAverageCallback, "device=''"),
    (
        khvd.callbacks.LearningRateScheduleCallback,
        "initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True, momentum_correction=True, "
        "steps_per_epoch=None",
    ),
    (
        khvd.callbacks.LearningRateWarmupCallback,
        "initial_lr, warmup_epochs=5, momentum_correction=True, steps_per_epoch=None, verbose=0",
    ),
    (
        khvd.callbacks.BestModelCheckpoint,
        "monitor='val_loss', verbose=0, save_weights_only=False, mode='auto', save_freq='epoch'",
    ),
]


@pytest.mark.parametrize(("function", "text"), SIGNATURES, ids=lambda each: getattr(each, "__name__", ""))
def test_signature(function, text):
    wanted = defaults(text)
    assert parameters(function)[: len(wanted)] == wanted


@pytest.mark.parametrize("function", [hvd.PartialDistributedGradientTape, khvd.PartialDistributedOptimizer])
def test_partial_ones_have_local_layers(function):
    names = [each if isinstance(each, str) else each[0] for each in parameters(function)]
    assert names[-3:] == ["process_set", "local_layers", "scale_local_gradients"]


def test_farandole_keras_is_this_module():
    import farandole.keras

    assert farandole.keras.DistributedOptimizer is khvd.DistributedOptimizer
    assert set(farandole.keras.__all__) == set(khvd.__all__)


def test_common_names_are_in_both_modules():
    for name in ("init", "shutdown", "is_initialized", "size", "rank", "local_size", "local_rank", "cross_size",
                 "cross_rank", "is_homogeneous", "Average", "Sum", "Adasum", "Min", "Max", "Product", "ProcessSet",
                 "global_process_set", "add_process_set", "remove_process_set", "Compression", "join"):  # fmt: skip
        assert name in hvd.__all__, name
        assert getattr(khvd, name) is getattr(hvd, name) or name == "join", name
    assert sorted(khvd.__all__) == sorted(set(khvd.__all__))
    assert all(hasattr(khvd, name) for name in khvd.__all__)


def values_outside_of_models():
    assert khvd.allreduce(hvd.rank() + 1.0) == pytest.approx(1.5)
    assert khvd.allreduce([1.0, 2.0], op=hvd.Sum, prescale_factor=0.5).tolist() == [1, 2]
    assert khvd.allgather(np.array([hvd.rank()])).tolist() == [0, 1]
    assert khvd.broadcast(float(hvd.rank()), 1) == 1
    assert khvd.reducescatter([2.0, 4.0], op=hvd.Sum).tolist() == [[4], [8]][hvd.rank()]
    mine = tf.constant([1.0 + hvd.rank(), 1.0])
    results = [
        khvd.allreduce(mine, op=hvd.Sum),
        khvd.allgather(mine),
        khvd.broadcast(mine, 1),
        khvd.reducescatter(mine, op=hvd.Sum),
        khvd.allreduce(tf.Variable([1.0 + hvd.rank()]), op=hvd.Sum),
    ]
    assert all(tf.is_tensor(each) for each in results), "tensors in, tensors out"
    assert [each.numpy().tolist() for each in results] == [[3, 2], [1, 1, 2, 1], [2, 1], [[3], [2]][hvd.rank()], [3]]
    with pytest.raises(RuntimeError, match="broadcast_variables"):
        khvd.broadcast_global_variables(0)


def legacy_optimizers():
    legacy = getattr(keras.optimizers, "legacy", None)
    if legacy is None or not isinstance(legacy.SGD, type) or not hasattr(legacy.SGD, "get_slot_names"):
        return  # Keras 3 has the names, and no optimizers under them
    optimizer = khvd.DistributedOptimizer(legacy.SGD(1.0, momentum=0.5))
    value = tf.Variable([1.0])
    optimizer.apply_gradients([(tf.constant([2.0 * hvd.rank()]), value)])
    assert value.numpy().tolist() == [0]
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer=khvd.DistributedOptimizer(legacy.Adam(0.1)), loss="mse")
    rows = np.full([4, 1], float(hvd.rank()))
    callbacks = khvd.callbacks
    schedule = callbacks.LearningRateScheduleCallback(0.5, lambda epoch: 1 / (epoch + 1))
    history = model.fit(
        rows, rows, epochs=2, verbose=0, callbacks=[callbacks.BroadcastGlobalVariablesCallback(0), schedule]
    ).history
    assert history["learning_rate" if hasattr(keras, "KerasTensor") else "lr"] == [0.5, 0.25]
    assert len(set(hvd.allgather_object(model.get_weights()[0].tobytes()))) == 1


@pytest.mark.parametrize("check", [values_outside_of_models, legacy_optimizers])
def test_meaning(check):
    world(2).run(check)
