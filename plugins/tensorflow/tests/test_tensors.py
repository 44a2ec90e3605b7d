"""Reductions and transfers of inputs other than dense tensors, and variables that become equal."""

import warnings

import farandole.numpy
import farandole_tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf
from farandole.testing import World, world

pytestmark = pytest.mark.timeout(180)


def slices():
    """Row `rank` and row 3, which all have."""
    rank, size = hvd.rank(), hvd.size()
    mine = tf.IndexedSlices(tf.constant([[1.0, 2.0], [4.0, 4.0]]) * size, tf.constant([rank, 3]), tf.constant([5, 2]))
    expected = np.zeros((5, 2))
    for each in range(size):
        expected[each] += [1, 2]
        expected[3] += [4, 4]
    averaged = hvd.allreduce(mine)
    assert isinstance(averaged, tf.IndexedSlices)
    assert tf.convert_to_tensor(averaged).numpy().tolist() == expected.tolist()
    summed = hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.5, compression=hvd.Compression.fp16)
    assert summed.values.dtype == tf.float32
    assert tf.convert_to_tensor(summed).numpy().tolist() == (expected * size / 2).tolist()
    for make in (lambda f: f, tf.function):
        dense, rows = make(lambda: hvd.grouped_allreduce([tf.ones(2), mine], op=hvd.Sum, name="both"))()
        assert dense.numpy().tolist() == [size] * 2
        assert tf.convert_to_tensor(rows).numpy().tolist() == (expected * size).tolist()
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        with pytest.raises(NotImplementedError, match="Sum or Average"):
            hvd.allreduce(mine, op=op)


def averages_of_integer_slices():
    """They are floats, as the quotient of integers is in TensorFlow; rank 0 has an index twice."""
    rank, size = hvd.rank(), hvd.size()
    values, indices = [[3, -3], [2 * rank, 1]], tf.constant([1, 1 + 2 * (rank % 2)])
    for given, averaged in ((tf.int32, tf.float64), (tf.uint8, tf.float32), (tf.int64, tf.float64)):
        mine = tf.IndexedSlices(tf.cast(values, given), indices, tf.constant([4, 2]))
        expected = hvd.allreduce(
            tf.convert_to_tensor(tf.IndexedSlices(tf.cast(mine.values, averaged), indices, [4, 2]))
        )
        for make in (lambda function: function, tf.function):
            found = make(lambda mine=mine: hvd.allreduce(mine, name="integers"))()
            assert found.values.dtype == averaged
            assert np.allclose(tf.convert_to_tensor(found), expected), (size, given)
    summed = hvd.allreduce(mine, op=hvd.Sum)
    assert summed.values.dtype == mine.values.dtype
    with pytest.raises(NotImplementedError, match="int64 take no scale factors"):
        hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.5)


def slices_of_an_embedding():
    table = tf.Variable(tf.zeros((4, 2)))

    @tf.function
    def reduced():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [hvd.rank(), 2]))
        return hvd.allreduce(tape.gradient(loss, table), op=hvd.Sum)

    expected = np.zeros((4, 2))
    for rank in range(hvd.size()):
        expected[rank] += 1
        expected[2] += 1
    assert tf.convert_to_tensor(reduced()).numpy().tolist() == expected.tolist()


def other_things():
    assert hvd.allreduce(tf.Variable([1.0]), op=hvd.Sum).numpy().tolist() == [hvd.size()]
    assert hvd.allreduce(np.ones(2, np.float64), op=hvd.Sum).dtype == tf.float64
    assert hvd.allreduce([1.0, 2.0], op=hvd.Sum).numpy().tolist() == [hvd.size(), 2 * hvd.size()]
    for wrong in (tf.SparseTensor([[0]], [1.0], [2]), tf.ragged.constant([[1], []])):
        with pytest.raises(TypeError, match="to_tensor"):
            hvd.allreduce(wrong)
    for wrong in (tf.constant("text"), tf.zeros(1, tf.qint8)):
        with pytest.raises(ValueError, match="supported are uint8"):
            hvd.allgather(wrong)
    with pytest.raises(TypeError, match="compression must be"):
        hvd.allreduce(tf.ones(1), compression="fp16")


def variables():
    mine = [tf.Variable(tf.fill([i % 5, 2], float(hvd.rank() + i))) for i in range(150)]
    mine.append(tf.Variable([hvd.rank()], dtype=tf.int64))
    odd = [tf.Variable([hvd.rank() + 1], dtype=dtype) for dtype in (tf.uint32, tf.uint64, tf.complex64, tf.complex128)]
    hvd.broadcast_variables(odd, root_rank=hvd.size() - 1, inplace=True)
    assert [each.numpy().tolist() for each in odd] == [[hvd.size()]] * 4
    assert hvd.broadcast_variables(mine, root_rank=hvd.size() - 1, inplace=True) is None
    assert all((each.numpy() == hvd.size() - 1 + i).all() for i, each in enumerate(mine[:150]))
    assert mine[150].numpy().tolist() == [hvd.size() - 1]

    @tf.function
    def in_a_function():
        hvd.broadcast_variables(mine[1:3], 0)

    mine[1].assign_add(tf.ones_like(mine[1]) * hvd.rank())
    in_a_function()
    assert (mine[1].numpy() == hvd.size()).all()
    assert hvd.broadcast_(mine[:2], 0)[1] is mine[1]
    assert hvd.broadcast_([], 0) == []
    texts(mine[0])
    with pytest.raises(RuntimeError, match=r"broadcast_variables\(model.variables"):
        hvd.broadcast_global_variables(0)


def texts(number):
    """Strings are broadcast among other variables, eagerly and in graphs of either kind."""
    root, words = hvd.size() - 1, [b"", b"r\xff\x00"] if hvd.rank() else [b"a", b"bcd"]
    expected = hvd.broadcast_object(words, root)
    number.assign(tf.zeros_like(number) + float(hvd.rank()))
    mine = [tf.Variable(words), number, tf.Variable(words[1])]
    in_a_function = tf.function(lambda: hvd.broadcast_variables(mine, root))
    for broadcast in (lambda: hvd.broadcast_variables(mine, root), in_a_function):
        mine[0].assign(words), mine[2].assign(words[1])
        broadcast()
        assert (mine[0].numpy().tolist(), mine[2].numpy()) == (expected, expected[1])
        assert (number.numpy() == root).all()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("words", initializer=words)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(hvd.broadcast_global_variables(root))
        assert session.run(variable).tolist() == expected


def objects():
    expected = [{"rank": rank} for rank in range(hvd.size())]
    assert hvd.allgather_object({"rank": hvd.rank()}, session=None, name="o") == expected
    assert hvd.broadcast_object(hvd.rank(), 0, session=None, name="o") == 0
    assert hvd.broadcast_object_fn(root_rank=0)(("a", hvd.rank())) == ("a", 0)


def bits():
    """The same numbers give the same bits as with numpy, through the same core, eagerly and in a graph."""
    random = np.random.default_rng(7 + hvd.rank())
    for dtype in ("float16", "float32", "float64"):
        for count in (1, 1000, 70001):
            array = (random.standard_normal(count) * 100).astype(dtype)
            for options in ({"op": hvd.Sum}, {"op": hvd.Average}, {"op": hvd.Sum, "prescale_factor": 1 / 3}):
                expected = farandole.numpy.allreduce(array, **options).tobytes()
                assert hvd.allreduce(array, **options).numpy().tobytes() == expected
                in_graph = tf.function(lambda x, options=options: hvd.allreduce(x, **options))
                assert in_graph(array).numpy().tobytes() == expected


@pytest.mark.parametrize(
    "check", [slices, averages_of_integer_slices, slices_of_an_embedding, other_things, variables, objects, bits]
)
@pytest.mark.parametrize("size", [1, 2])
def test_tensors(size, check):
    world(size).run(check)


def without_asynchronous_kernels():
    """Where TensorFlow's C++ library is unknown: one after the other in the order of the graph, and said once."""
    from farandole_tensorflow import _native

    tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd.init()
    _native.block()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        @tf.function
        def reduce(x):
            summed = [hvd.allreduce(x + i, op=hvd.Sum) for i in range(20)]
            for _ in tf.range(2):
                x = hvd.allreduce(hvd.allreduce(x))
            return [*summed, hvd.allgather(x[: hvd.rank() + 1]), hvd.alltoall(x)]

        *summed, gathered, exchanged = reduce(tf.ones(4))
    assert [each.numpy().tolist() for each in summed] == [[hvd.size() * (1 + i)] * 4 for i in range(20)]
    assert gathered.numpy().tolist() == [1] * 3
    assert exchanged.numpy().tolist() == [1] * 4
    assert len([each for each in caught if "one after the other" in str(each.message)]) == 1
    assert hvd.allreduce(tf.ones(1), op=hvd.Sum).numpy().tolist() == [2]
    with pytest.raises(hvd.MismatchError):
        hvd.allreduce(tf.ones(1 + hvd.rank()))
    hvd.shutdown()
    assert gathered.numpy().tolist() == [1] * 3, "results are TensorFlow's, whatever becomes of the world"


def test_operations_wait_for_each_other_where_kernels_cannot_end_later():
    with World(2, init=False) as two:
        two.run(without_asynchronous_kernels)
