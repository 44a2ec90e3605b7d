"""DistributedOptimizer(op=Adasum) of TF1: orthogonal changes of the ranks are added, parallel ones are averaged."""

import farandole_tensorflow as hvd
import pytest
import tensorflow as tf
from farandole.testing import world


def own_gradient(step):
    """In the first element the ranks' own, so that they are orthogonal; in the last two equal on both."""
    return [[step, 0.0], [0.0, step]][hvd.rank()] if hvd.size() == 2 else [step, step]


def in_a_session(passes, use_resource):
    with tf.Graph().as_default():
        given = tf.compat.v1.placeholder(tf.float64, [2])
        variables = [
            tf.compat.v1.get_variable(name, initializer=tf.constant([1.0, 1.0], tf.float64), use_resource=use_resource)
            for name in ("own", "common")
        ]
        loss = tf.reduce_sum(given * variables[0]) + tf.reduce_sum(variables[1])
        optimizer = tf.compat.v1.train.MomentumOptimizer(1.0, 0.0)
        optimizer = hvd.DistributedOptimizer(optimizer, op=hvd.Adasum, backward_passes_per_step=passes)
        counter = tf.compat.v1.train.get_or_create_global_step()
        step = optimizer.minimize(loss, global_step=counter)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            seen = []
            for number in range(1, 5):
                session.run(step, {given: own_gradient(number)})
                seen.append([each.tolist() for each in session.run(variables)])
            assert session.run(counter) == 4
    return seen


def eagerly(passes, _):
    variables = [tf.Variable([1.0, 1.0], dtype=tf.float64) for _ in range(2)]
    optimizer = tf.compat.v1.train.MomentumOptimizer(1.0, 0.0)
    optimizer = hvd.DistributedOptimizer(optimizer, op=hvd.Adasum, backward_passes_per_step=passes)
    seen = []
    for number in range(1, 5):
        gradients = [tf.constant(own_gradient(number), tf.float64), tf.ones(2, tf.float64)]
        optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))
        seen.append([each.numpy().tolist() for each in variables])
    return seen


WAYS = [(in_a_session, True), (in_a_session, False), (eagerly, True)]
AFTER = [[[1 - s, 1 - s], [1 - n, 1 - n]] for n, s in enumerate((1, 3, 6, 10), start=1)]  # sums of 1 to n


@pytest.mark.parametrize(("way", "use_resource"), WAYS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_changes_are_combined_after_each_step(ranks, way, use_resource):
    assert world(ranks).run(way, 1, use_resource) == [AFTER] * ranks


@pytest.mark.parametrize(("way", "use_resource"), WAYS)
def test_changes_of_several_passes_are_combined_after_the_last(way, use_resource):
    seen = world(2).run(way, 2, use_resource)
    for rank, steps in enumerate(seen):
        assert [steps[1], steps[3]] == [AFTER[1], AFTER[3]]
        own = [1.0, 1.0]
        own[rank] = 0.0
        assert steps[0] == [own, [0.0, 0.0]]  # its own step, not combined yet


def wrong_arguments():
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    with pytest.raises(ValueError, match="needs op=Average"):
        hvd.DistributedOptimizer(optimizer, op=hvd.Adasum, gradient_predivide_factor=2.0)
    optimizer = hvd.DistributedOptimizer(optimizer, op=hvd.Adasum)
    with pytest.raises(ValueError, match="distributed already"):
        hvd.DistributedOptimizer(optimizer, op=hvd.Adasum)
    variable = tf.Variable([0.0] * (hvd.rank() + 1))
    with pytest.raises(hvd.MismatchError, match=r"delta\.0.*rank 0.*rank 1"):
        optimizer.apply_gradients([(tf.ones_like(variable), variable)])
    return True


def test_wrong_arguments_are_refused_and_shapes_that_differ_named():
    assert world(2).run(wrong_arguments) == [True, True]
