"""Inside of functions with jit_compile=True, after `use_xla`."""

import os
import time

import farandole_tensorflow as hvd
import farandole_tensorflow.keras as khvd
import numpy as np
import pytest
import tensorflow as tf
from digits_like import bits, data, keras, network, same_everywhere
from farandole.testing import RanksFailed, World

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def two():
    """Ranks of their own, for what was opted into stays so."""
    with World(2) as ranks:
        ranks.run(opt_in)
        yield ranks


def opt_in():
    hvd.use_xla()
    hvd.use_xla()  # once is enough, and twice is no harm


def ranks():
    return range(1, hvd.size() + 1)


DTYPES = ["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "bool"]


def reductions():
    @tf.function(jit_compile=True)
    def reduce(x):
        # Compiled, before and after.
        return hvd.allreduce(x * 2, op=hvd.Max) + x, hvd.allreduce(x, op=hvd.Min), hvd.allreduce(x + 3, op=hvd.Sum)

    for dtype in DTYPES[:-1]:
        mine = tf.cast(tf.reshape(tf.range(6), [2, 3]) + hvd.rank(), dtype)
        for _ in range(2):
            largest, least, total = (tf.cast(each, tf.float64).numpy() for each in reduce(mine))
        base = np.arange(6.0).reshape(2, 3)
        assert (largest == 2 * (base + 1) + base + hvd.rank()).all(), dtype
        assert (least == base).all(), dtype
        assert (total == 2 * base + 7).all(), dtype

    @tf.function(jit_compile=True)
    def averages(small, large, z):
        return hvd.allreduce(small), hvd.allreduce(large), hvd.allreduce(z)

    given = [tf.constant([200], tf.uint8), tf.constant([2**64 - 1], tf.uint64), tf.constant([1 + 2j * hvd.rank()])]
    found = [each.numpy().tolist() for each in averages(*given)]
    assert found == [[200], [2**64 - 1], [1 + 1j]]

    @tf.function(jit_compile=True)
    def grouped(x):
        same = {"op": hvd.Sum, "prescale_factor": 0.5, "postscale_factor": 4.0}
        scalar, empty, flags = x[0, 0], tf.zeros([0, 2]), tf.constant([True, hvd.rank() == 0])
        return [*hvd.grouped_allreduce([x, scalar, empty], **same), hvd.allreduce(flags, op=hvd.Product)]

    rows, scalar, empty, flags = grouped(tf.fill([3, 2], hvd.rank() + 1.0))
    assert rows.numpy().tolist() == [[6.0, 6.0]] * 3
    assert float(scalar) == 6
    assert empty.shape == (0, 2)
    assert flags.numpy().tolist() == [True, False]


def test_values(two):
    two.run(reductions, timeout=120)


def gradients():
    @tf.function(jit_compile=True)
    def both(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum) * (hvd.rank() + 1.0))
        return value, tape.gradient(value, x)

    value, gradient = both(tf.constant([2.0, 3.0]))
    assert float(value) == 10 * (hvd.rank() + 1)
    assert gradient.numpy().tolist() == [3, 3]

    @tf.function(jit_compile=True)
    def largest(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = hvd.allreduce(x, op=hvd.Max)
        return tape.gradient(value, x)

    with pytest.raises(ValueError, match="no gradient"):
        largest(tf.constant([2.0]))


def test_gradients(two):
    two.run(gradients, timeout=120)


def fitted(jit_compile):
    model = network("float32", hvd.rank())
    model.compile(khvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), loss="mse", jit_compile=jit_compile)
    x, y, batch_size = data(4, "float32")
    start = khvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(x, y, batch_size=batch_size, epochs=2, shuffle=False, verbose=0, callbacks=[start])
    assert model.jit_compile is jit_compile
    return model.get_weights()


def trained():
    compiled, plain = fitted(True), fitted(False)
    assert same_everywhere(bits(compiled))
    assert all(np.allclose(mine, other, atol=1e-5) for mine, other in zip(compiled, plain, strict=True))


def test_models_train_alike_compiled_and_not(two):
    two.run(trained, timeout=180)


def mistakes():
    reduce = tf.function(lambda x: hvd.allreduce(x, name="unlike"), jit_compile=True)
    with pytest.raises(tf.errors.InternalError, match=r"unlike[\s\S]*shape"):
        reduce(tf.ones(2 + hvd.rank()))
    assert reduce(tf.ones(4)).numpy().tolist() == [1, 1, 1, 1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="allgather cannot be compiled"):
        tf.function(hvd.allgather, jit_compile=True)(tf.ones(2))
    some = tf.function(hvd.allreduce, jit_compile=True, input_signature=[tf.TensorSpec([None])])
    with pytest.raises(ValueError, match="needs to know the shape"):
        some(tf.ones(2))


def test_mistakes(two):
    two.run(mistakes, timeout=120)


def die(folder):
    reduce = tf.function(lambda x: hvd.allreduce(x, name="left"), jit_compile=True)
    reduce(tf.ones(1))
    if hvd.rank() == 1:
        while not os.listdir(folder):  # what is done here may still be under way on the other
            time.sleep(0.01)
        os._exit(9)
    with open(os.path.join(folder, "done"), "w"):
        pass
    with pytest.raises(tf.errors.InternalError, match="rank 1"):
        for _ in range(100):
            reduce(tf.ones(1))


def test_a_rank_that_dies(tmp_path):
    with World(2) as both:
        both.run(opt_in)
        with pytest.raises(RanksFailed) as caught:
            both.run(die, str(tmp_path), timeout=60)
    assert "rank 0" not in str(caught.value).split("rank 1")[0]
