"""Gradients of all operations, eagerly and in graphs, as in Horovod: closed formulas of rank and place."""

import farandole_tensorflow as hvd
import pytest
import tensorflow as tf
from farandole.testing import world

pytestmark = pytest.mark.timeout(180)
RANKS = (1, 2, 3)


def total():
    return sum(rank + 1 for rank in range(hvd.size()))


def ones(*shape):
    return tf.Variable(tf.ones(shape, tf.float64))


def weighted(tensor, weight=1):
    """A scalar whose gradient is (rank + 1) * weight."""
    return tf.reduce_sum(tensor * tf.cast(weight * (hvd.rank() + 1), tensor.dtype))


def gradients(function, *sources):
    """Eagerly, in tf.function and, with values instead of variables, in a graph of TF1: they agree."""

    def compute():
        with tf.GradientTape() as tape:
            loss = function(*sources)
        return tape.gradient(loss, sources)

    eager = [each.numpy().tolist() for each in compute()]
    assert [each.numpy().tolist() for each in tf.function(compute)()] == eager
    values = [each.numpy() for each in sources]
    with tf.Graph().as_default():
        given = list(map(tf.constant, values))
        found = tf.gradients(function(*given), given)
        with tf.compat.v1.Session() as session:
            assert [each.tolist() for each in session.run(found)] == eager
    return eager


def of_allreduce():
    for op, factor in ((hvd.Sum, 1), (hvd.Average, 1 / hvd.size())):
        (found,) = gradients(lambda x, op=op: weighted(hvd.allreduce(x, op=op)), ones(2))
        assert found == pytest.approx([total() * factor] * 2)
    scaled = lambda x: weighted(hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0))  # noqa: E731
    assert gradients(scaled, ones(2)) == [[1.5 * total()] * 2]
    narrow = lambda x: weighted(hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16))  # noqa: E731
    assert gradients(narrow, ones(2)) == [[total()] * 2]
    with pytest.raises(ValueError, match=r"op=Max has no gradient.*Sum or Average"):
        gradients(lambda x: weighted(hvd.allreduce(x, op=hvd.Max)), ones(2))


def of_complex_allreduce():
    for op, factor in ((hvd.Sum, 1), (hvd.Average, 1 / hvd.size())):
        x = tf.Variable([1 + 2j, 3j], dtype=tf.complex128)
        weights = tf.constant([hvd.rank() + 1j, 2 - 1j], tf.complex128)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.math.real(hvd.allreduce(x, op=op) * weights))
        ranks, total = hvd.size(), sum(range(hvd.size()))
        expected = [(total - ranks * 1j) * factor, (2 * ranks + ranks * 1j) * factor]
        assert tape.gradient(loss, x).numpy().tolist() == pytest.approx(expected)


def of_grouped_allreduce():
    def function(x, y):
        a, b = hvd.grouped_allreduce([x, y], op=hvd.Sum)
        return weighted(a) + weighted(b, 2)

    assert gradients(function, ones(1), ones(2)) == [[total()], [2 * total()] * 2]
    alone = lambda x, y: weighted(hvd.grouped_allreduce([x, y], op=hvd.Sum)[1]) + 0 * tf.reduce_sum(x)  # noqa: E731
    assert gradients(alone, ones(1), ones(2)) == [[0], [total()] * 2]


def of_allgather():
    rows = hvd.rank() + 1
    start = sum(rank + 1 for rank in range(hvd.rank()))

    def function(x, y):
        a, b = hvd.grouped_allgather([x, y])
        places = tf.reshape(tf.range(tf.size(a), dtype=tf.float64), tf.shape(a))
        return weighted(a * places) + weighted(b, 3)

    average = total() / hvd.size()
    first, second = gradients(function, ones(rows, 2), ones(1))
    assert [pytest.approx(row) for row in first] == [[average * 2 * i, average * (2 * i + 1)] for i in
                                                     range(start, start + rows)]  # fmt: skip
    assert second == pytest.approx([3 * average])


def of_broadcast():
    root = hvd.size() - 1
    expected = total() / hvd.size() if hvd.rank() == root else 0
    assert gradients(lambda x: weighted(hvd.broadcast(x, root)), ones(2)) == [pytest.approx([expected] * 2)]


def of_reducescatter():
    rows = hvd.size() + 1  # rank 0 has two
    owner = [0, *range(hvd.size())]
    for op, factor in ((hvd.Sum, hvd.size()), (hvd.Average, 1)):
        (found,) = gradients(lambda x, op=op: weighted(hvd.reducescatter(x, op=op)), ones(rows, 1))
        assert found == [[factor * (rank + 1)] for rank in owner]
    both = lambda x: weighted(hvd.grouped_reducescatter([x, x], op=hvd.Average, postscale_factor=2.0)[0])  # noqa: E731
    assert gradients(both, ones(rows, 1)) == [[[2 * (rank + 1)] for rank in owner]]


def of_alltoall():
    ranks = range(hvd.size())
    assert gradients(lambda x: weighted(hvd.alltoall(x)), ones(hvd.size())) == [[rank + 1 for rank in ranks]]
    splits = [to + 1 for to in ranks]
    function = lambda x: weighted(hvd.alltoall(x, splits)[0])  # noqa: E731
    assert gradients(function, ones(sum(splits))) == [[to + 1 for to in ranks for _ in range(splits[to])]]


def in_a_set():
    if hvd.size() < 3:
        return
    pair = hvd.add_process_set([1, 2])
    if pair.included():
        (found,) = gradients(lambda x: weighted(hvd.allreduce(x, process_set=pair)), ones(1))
        assert found == [2.5]
        (found,) = gradients(lambda x: weighted(hvd.allgather(x, process_set=pair)), ones(2))
        assert found == [2.5, 2.5]
        (found,) = gradients(lambda x: weighted(hvd.reducescatter(x, process_set=pair, op=hvd.Sum)), ones(2))
        assert found == [4, 6]
    hvd.remove_process_set(pair)


def of_gradients():
    x = ones(1)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = weighted(hvd.allreduce(x * x, op=hvd.Sum))
        slope = inner.gradient(y, x)
    assert slope.numpy().tolist() == [2 * total()]
    assert outer.gradient(slope, x).numpy().tolist() == [2 * total()]


def of_loops():
    @tf.function
    def compute(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in tf.range(5):
                y = hvd.allreduce(y, op=hvd.Average)
            loss = tf.reduce_sum(y)
        return tape.gradient(loss, x)

    assert compute(tf.constant([1.0])).numpy().tolist() == [1]


@pytest.mark.parametrize("size", RANKS)
@pytest.mark.parametrize(
    "check",
    [
        *(of_allreduce, of_complex_allreduce, of_grouped_allreduce, of_allgather, of_broadcast, of_reducescatter),
        *(of_alltoall, in_a_set),
        *(of_gradients, of_loops),
    ],
)
def test_gradients(size, check):
    world(size).run(check)
