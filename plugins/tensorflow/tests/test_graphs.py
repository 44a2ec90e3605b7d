"""Operations in tf.function and in TF1's graphs: many at once, none lost, none merged, none computed in advance."""

import farandole_tensorflow as hvd
import pytest
import tensorflow as tf
from farandole.testing import World, world

pytestmark = pytest.mark.timeout(180)


def ranks():
    return range(hvd.size())


def sums(results, count, extra=0):
    total = sum(rank + 1 for rank in ranks())
    for i, result in enumerate(results):
        assert result.numpy().tolist() == [total + i * hvd.size() + extra] * count


def many_in_a_function():
    @tf.function
    def reduce(x):
        return [hvd.allreduce(x + i, op=hvd.Sum) for i in range(50)]

    for _ in range(3):
        sums(reduce(tf.ones(7, tf.int32) * (hvd.rank() + 1)), 7)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_many_operations_in_a_function(size):
    world(size).run(many_in_a_function)


def submitted():
    from farandole import _core

    return _core.info()["bytes_submitted"]


def hundreds_in_flight():
    """Rank 0 does not run its graph until rank 1 has submitted everything, of which nothing can be complete then."""
    import threading
    import time

    tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd.init()
    count, elements = 300, 3

    @tf.function
    def reduce(x):
        return tf.stack([hvd.allreduce(x + i, op=hvd.Sum) for i in range(count)])

    x = tf.ones(elements, tf.int64)
    reduce.get_concrete_function(x)
    hvd.barrier()
    if hvd.rank() == 0:
        assert hvd.broadcast_object(None, 1, name="all submitted") == count
        result = reduce(x)
    else:
        before, results = submitted(), []
        thread = threading.Thread(target=lambda: results.append(reduce(x)))
        thread.start()
        until = time.monotonic() + 60
        while submitted() - before < count * elements * 8 and time.monotonic() < until:
            time.sleep(0.01)
        assert not results
        hvd.broadcast_object((submitted() - before) // (elements * 8), 1, name="all submitted")
        thread.join()
        (result,) = results
    expected = [[hvd.size() * (1 + i)] * elements for i in range(count)]
    assert result.numpy().tolist() == expected


def test_hundreds_are_in_flight_at_once_with_one_thread():
    with World(2, init=False) as two:
        two.run(hundreds_in_flight, timeout=120)


def constants():
    @tf.function
    def reduce():
        return hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Sum), hvd.allgather(tf.constant([3]))

    reduce()
    before = submitted()
    for _ in range(3):
        reduced, gathered = reduce()
        assert reduced.numpy().tolist() == [hvd.size(), 2 * hvd.size()]
        assert gathered.numpy().tolist() == [3] * hvd.size()
    assert submitted() - before == 3 * (2 * 4 + 4)


def test_operations_on_constants_are_not_computed_in_advance():
    world(2).run(constants)


def equal_ones():
    @tf.function
    def reduce(x):
        return hvd.allreduce(x, op=hvd.Sum) + hvd.allreduce(x, op=hvd.Sum) + hvd.allreduce(x, op=hvd.Sum, name="x")

    x = tf.ones(2)
    reduce(x)
    before = submitted()
    assert reduce(x).numpy().tolist() == [3 * hvd.size()] * 2
    assert submitted() - before == 3 * 2 * 4


def test_equal_operations_are_not_merged():
    world(2).run(equal_ones)


def unused_ones():
    """TensorFlow's result is the same on all ranks, and later operations are paired correctly."""

    @tf.function
    def reduce(x):
        hvd.allreduce(x * 7, op=hvd.Sum, name="unused")
        return hvd.allreduce(x, op=hvd.Sum)

    for _ in range(3):
        assert reduce(tf.ones(2)).numpy().tolist() == [hvd.size()] * 2
    hvd.allreduce(tf.ones(2))
    assert hvd.allreduce(tf.ones(3), op=hvd.Sum).numpy().tolist() == [hvd.size()] * 3


def test_unused_operations_are_the_same_on_all_ranks():
    world(2).run(unused_ones)


def called_twice():
    """Both calls' copies of the node are in flight at once, in another order on each rank."""

    @tf.function
    def reduce(x, turns):
        for _ in tf.range(turns):
            x = tf.matmul(x, tf.eye(2))
        return hvd.allreduce(x, op=hvd.Sum, name="inner")

    @tf.function
    def both(x):
        late = 20000
        slow, fast = (late, 1) if hvd.rank() else (1, late)
        return reduce(x, tf.constant(slow)), reduce(3 * x, tf.constant(fast))

    first, second = both(tf.eye(2) * (hvd.rank() + 1))
    total = sum(rank + 1 for rank in ranks())
    assert first.numpy().tolist() == [[total, 0], [0, total]]
    assert second.numpy().tolist() == [[3 * total, 0], [0, 3 * total]]


def test_a_function_that_is_called_twice_pairs_each_call():
    world(2).run(called_twice)


def loops():
    @tf.function
    def reduce(x):
        total = tf.zeros(2)
        for i in tf.range(200):
            total += hvd.allreduce(x + tf.cast(i, tf.float32), op=hvd.Sum)
        return total

    @tf.function
    def nested(x):
        total = tf.zeros(2)
        for i in tf.range(5):
            for j in tf.range(5):
                total += hvd.allreduce(x * tf.cast(10 * i + j, tf.float32), op=hvd.Sum)
        return total

    @tf.function
    def mapped(x):
        return tf.map_fn(lambda each: hvd.allreduce(each, op=hvd.Sum), x, parallel_iterations=32)

    own = tf.ones(2) * (hvd.rank() + 1)
    mine = sum(rank + 1 for rank in ranks())
    for _ in range(2):
        assert reduce(own).numpy().tolist() == [200 * mine + hvd.size() * 199 * 100] * 2
        assert nested(own).numpy().tolist() == [mine * sum(10 * i + j for i in range(5) for j in range(5))] * 2
        rows = tf.reshape(tf.range(300, dtype=tf.int32), [100, 3])
        assert mapped(rows).numpy().tolist() == (rows.numpy() * hvd.size()).tolist()


def test_loops_pair_each_turn():
    world(2).run(loops)


def branches():
    @tf.function
    def reduce(x, up):
        if up:
            return hvd.allreduce(x, op=hvd.Max)
        return hvd.allreduce(x, op=hvd.Min)

    own = tf.constant([float(hvd.rank())])
    assert reduce(own, tf.constant(True)).numpy().tolist() == [hvd.size() - 1]
    assert reduce(own, tf.constant(False)).numpy().tolist() == [0]


def test_branches():
    world(2).run(branches)


def conditions_of_one_rank():
    """TensorFlow counts all conditions and loops of a graph in one; rank 0 has some of its own, without operations."""

    @tf.function
    def reduce(x):
        if hvd.rank() == 0:
            x = tf.cond(x[0] > 100, lambda: x * 2, lambda: x, name="only_here")
            (x,) = tf.while_loop(lambda x: x[0] > 100, lambda x: [x / 2], [x], name="only_here_too")
        some = tf.cond(x[0] > 0, lambda: hvd.allreduce(x, op=hvd.Sum), lambda: x, name="everywhere")
        return some + hvd.allreduce(x, op=hvd.Sum)

    total = sum(rank + 1 for rank in ranks())
    for _ in range(2):
        assert reduce(tf.ones(2) * (hvd.rank() + 1)).numpy().tolist() == [2 * total] * 2


def test_conditions_of_one_rank_change_no_names():
    world(2).run(conditions_of_one_rank, timeout=60)


def shapes():
    @tf.function
    def everything(x):
        assert hvd.allreduce(x).shape.as_list() == [None, 7]
        assert hvd.broadcast(x, 0).shape.as_list() == [None, 7]
        assert hvd.allgather(x).shape.as_list() == [None, 7]
        assert hvd.reducescatter(x).shape.as_list() == [None, 7]
        result, received = hvd.alltoall(x, [1] * hvd.size())
        assert (result.shape.as_list(), received.shape.as_list()) == ([None, 7], [None])
        assert [each.shape.as_list() for each in hvd.grouped_allreduce([x, x[0]])] == [[None, 7], [7]]
        return x

    everything.get_concrete_function(tf.TensorSpec([None, 7]))

    @tf.function
    def anything(x):
        assert hvd.allgather(x).shape.rank is None
        return hvd.allreduce(x)

    anything.get_concrete_function(tf.TensorSpec(None))
    for scalar in (hvd.allgather, hvd.reducescatter, hvd.alltoall):
        with pytest.raises(ValueError, match="rank"):
            tf.function(scalar).get_concrete_function(tf.TensorSpec([]))


def test_shapes_are_known_as_far_as_they_can_be():
    world(2).run(shapes)


def places():
    @tf.function
    def look():
        return hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op(), hvd.process_set_included_op()

    expected = [hvd.rank(), hvd.size(), hvd.rank(), hvd.size(), 1]
    assert [int(each) for each in look()] == expected
    assert [int(each) for each in (hvd.rank_op(), hvd.size_op())] == expected[:2]
    if hvd.size() > 1:
        added = hvd.add_process_set([0])
        number = added.process_set_id
        assert int(hvd.size_op(number)) == 1
        assert int(hvd.process_set_included_op(number)) == (hvd.rank() == 0)
        hvd.remove_process_set(added)


def test_places_are_looked_up_when_a_graph_runs():
    world(2).run(places)


def barriers_and_joins():
    @tf.function
    def step(x):
        hvd.barrier()
        return hvd.allreduce(x, op=hvd.Sum)

    assert step(tf.ones(1)).numpy().tolist() == [hvd.size()]

    @tf.function
    def finish():
        return hvd.join()

    if hvd.rank() == 0:
        assert hvd.allreduce(tf.ones(2), op=hvd.Sum).numpy().tolist() == [1, 1]
    assert int(finish()) in ranks()


def test_barrier_and_join_in_a_function():
    world(2).run(barriers_and_joins)


def in_a_session():
    graph = tf.Graph()
    with graph.as_default():
        given = tf.compat.v1.placeholder(tf.float32, [None])
        variable = tf.compat.v1.get_variable("weight", initializer=tf.constant([float(hvd.rank()), 5.0]))
        with tf.compat.v1.name_scope(f"only_on_{hvd.rank()}"):
            reduced = hvd.allreduce(given * variable, op=hvd.Sum)
        gradient = tf.gradients(reduced, variable)[0]
        gathered = hvd.allgather(given)
        broadcast = hvd.broadcast_global_variables(hvd.size() - 1)
    with tf.compat.v1.Session(graph=graph) as session:
        session.run(tf.compat.v1.variables_initializer([variable]))
        session.run(broadcast)
        assert session.run(variable).tolist() == [hvd.size() - 1, 5]
        for _ in range(2):
            values = session.run([reduced, gradient, gathered], {given: [2.0, 3.0 * (hvd.rank() + 1)]})
            total = sum(3 * (rank + 1) for rank in ranks())
            assert values[0].tolist() == [2 * hvd.size() * (hvd.size() - 1), 5 * total]
            assert values[1].tolist() == [2 * hvd.size(), 3 * (hvd.rank() + 1) * hvd.size()]
            assert values[2].tolist() == [v for rank in ranks() for v in (2, 3 * (rank + 1))]


@pytest.mark.parametrize("size", [1, 2])
def test_graphs_and_sessions_of_tf1(size):
    world(size).run(in_a_session)


def with_the_hook(folder):
    with tf.Graph().as_default():
        step = tf.compat.v1.train.get_or_create_global_step()
        variable = tf.compat.v1.get_variable("weight", initializer=tf.constant([hvd.rank() + 1.0]))
        hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.compat.v1.train.StopAtStepHook(3)]
        advance = tf.compat.v1.assign_add(step, 1)
        checkpoints = folder if hvd.rank() == 0 else None
        with tf.compat.v1.train.MonitoredTrainingSession(checkpoint_dir=checkpoints, hooks=hooks) as session:
            while not session.should_stop():
                _, value = session.run([advance, variable])
                assert value.tolist() == [1.0]


def test_the_hook_broadcasts_what_a_session_has_initialized(tmp_path):
    world(2).run(with_the_hook, str(tmp_path / "checkpoints"))
