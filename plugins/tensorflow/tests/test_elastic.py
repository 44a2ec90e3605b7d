"""Elastic training with TensorFlow and Keras: states, callbacks, errors of graphs, what a traced function holds."""

import farandole_tensorflow as hvd
import farandole_tensorflow.keras as khvd
import numpy as np
import pytest
import tensorflow as tf
from digits_like import bits, data, keras, network, state
from farandole._start import environment
from farandole._start import world as start
from farandole._start.bootstrap import Rendezvous
from farandole.testing import spawn, world
from farandole_tensorflow import _errors

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def alone():
    hvd.init()
    yield
    hvd.shutdown()


def compiled(**options):
    model = network("float32", hvd.rank())
    optimizer = khvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9), **options)
    model.compile(optimizer=optimizer, loss="mse", jit_compile=False)
    return model


def fit(model, *callbacks, batches=3, epochs=1, **options):
    x, y, batch_size = data(batches, "float32")
    options = {"batch_size": batch_size, "shuffle": False, "verbose": 0, **options}
    model.fit(x, y, epochs=epochs, callbacks=list(callbacks), **options)


def everything(model):
    return bits([*model.weights, *state(model.optimizer)])


# ---- Variables


def test_variables_are_those_of_the_last_commit(alone):
    variables = [tf.Variable([1.0, 2.0]), tf.Variable(3, dtype=tf.int64)]
    kept = hvd.elastic.TensorFlowState(variables, step=0)
    kept.commit()
    for number in range(3):
        variables[0].assign_add([1.0, 1.0])
        variables[1].assign_add(1)
        kept.step += 1
        if number == 1:
            kept.commit()
    for _ in range(2):
        kept.restore()
        assert (variables[0].numpy().tolist(), int(variables[1]), kept.step) == ([3.0, 4.0], 5, 2)
        variables[0].assign_add([9.0, 9.0])


def test_a_new_process_goes_on_from_a_copy(alone):
    variables = [tf.Variable([1.0, 2.0]), tf.Variable(tf.range(50_000, dtype=tf.int64)), tf.Variable(tf.zeros([0]))]
    kept = hvd.elastic.TensorFlowState(variables, step=3)
    kept.commit()
    content = memoryview(b"".join(kept._to_copy()))
    variables[0].assign_add([9.0, 9.0])  # the copy has its own memory
    others = [tf.Variable([0.0, 0.0]), tf.Variable(tf.zeros([50_000], tf.int64)), tf.Variable(tf.zeros([0]))]
    fresh = hvd.elastic.TensorFlowState(others, step=0)
    fresh._from_copy(content)
    assert (others[0].numpy().tolist(), fresh.step, fresh._commits) == ([1.0, 2.0], 3, 1)
    assert np.array_equal(others[1].numpy(), np.arange(50_000))


def test_a_graph_of_tf1(alone):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("weight", initializer=[1.0, 2.0])
        session.run(tf.compat.v1.global_variables_initializer())
        kept = hvd.elastic.TensorFlowState(session=session)
        kept.commit()
        session.run(variable.assign([5.0, 5.0]))
        kept.restore()
        assert session.run(variable).tolist() == [1.0, 2.0]


def test_variables_are_needed(alone):
    with pytest.raises(ValueError, match="needs the variables to save"):
        hvd.elastic.TensorFlowState()


def _synced():
    variable = tf.Variable([1.0 + hvd.rank()])
    kept = hvd.elastic.TensorFlowState([variable], step=hvd.rank())
    kept._commits = hvd.rank()
    kept.sync()
    values = [variable.numpy().tolist(), kept.step]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("weight", initializer=[1.0 + hvd.rank()])
        session.run(tf.compat.v1.global_variables_initializer())
        hvd.elastic.TensorFlowState(session=session).sync()
        return [*values, session.run(variable).tolist()]


def test_all_take_the_variables_of_the_rank_with_the_most_commits():
    assert world(2).run(_synced) == [[[2.0], 1, [1.0]]] * 2


def _joined():
    """Ranks 0 to 2 have the same values but for one, rank 3 has just joined."""
    is_new = hvd.rank() // 3
    values = [np.full((300, 200), 1.5 + is_new), 7 + is_new, [True, is_new > 0], [1.0 + hvd.rank()]]
    kinds = [tf.bfloat16, tf.int64, tf.bool, tf.float32]
    variables = [tf.Variable(value, dtype=kind) for value, kind in zip(values, kinds, strict=True)]
    kept = hvd.elastic.TensorFlowState(variables, step=hvd.rank() // 3)
    kept._commits, kept._syncs = 0, 1 - is_new
    kept.sync()
    found = [float(tf.reduce_min(tf.cast(each, tf.float32))) for each in variables]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("weight", initializer=[1.0 + is_new, 2.0])
        session.run(tf.compat.v1.global_variables_initializer())
        kept = hvd.elastic.TensorFlowState(session=session)
        kept._syncs = 1 - is_new
        kept.sync()
        return [*found, kept._commits, *session.run(variable).tolist()]


def test_three_send_what_they_have_in_common_to_one_that_joins():
    assert world(4).run(_joined) == [[1.5, 7.0, 0.0, 1.0, 0, 1.0, 2.0]] * 4


def _of_other_shapes():
    try:
        hvd.elastic.TensorFlowState([tf.Variable([1.0] * (1 + hvd.rank()))]).sync()
    except hvd.MismatchError as error:
        return str(error)
    return "nothing"


def test_variables_that_differ_are_told_on_all_ranks():
    for message in world(2).run(_of_other_shapes):
        assert "rank 0 has variable 0 of float32 (1,) of 'variables' (_Listed), which rank 1 lacks" in message


def _joined_with_keras():
    model = compiled()
    kept = khvd.elastic.KerasState(model, epoch=0)
    if hvd.rank() < 3:
        model.set_weights([np.full(each.shape, 0.5) for each in model.get_weights()])
        kept._syncs = 1
    kept.sync()
    return {float(each) for array in model.get_weights() for each in array.flat}


def test_three_send_a_model_to_one_that_joins():
    assert world(4).run(_joined_with_keras) == [{0.5}] * 4


# ---- Keras


def test_a_model_goes_on_from_the_last_commit_as_if_nothing_had_been(alone):
    model = compiled()
    kept = khvd.elastic.KerasState(model, epoch=0)
    kept.commit()
    fit(model)
    kept.commit()
    before = everything(model)
    fit(model)
    expected = everything(model)
    assert expected != before
    for _ in range(2):
        kept.restore()
        assert everything(model) == before
        fit(model)
        assert everything(model) == expected


def test_restore_to_before_the_first_step(alone):
    model = compiled()
    kept = hvd.elastic.TensorFlowKerasState(model)
    before = everything(model)
    kept.commit()
    fit(model)
    kept.restore()
    assert everything(model) == before


def test_a_model_without_weights_is_refused(alone):
    model = keras.Sequential([keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="the model has no weights yet"):
        khvd.elastic.KerasState(model)


def test_callbacks_keep_batch_and_epoch_and_commit(alone):
    model = compiled()
    kept = khvd.elastic.KerasState(model, epoch=0, batch=0)
    seen = []
    see = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append((kept.epoch, kept.batch, kept._commits))
    )
    callbacks = [
        khvd.elastic.UpdateBatchStateCallback(kept),
        khvd.elastic.UpdateEpochStateCallback(kept),
        khvd.elastic.CommitStateCallback(kept, batches_per_commit=2),
        see,
    ]
    fit(model, *callbacks, epochs=2)
    assert seen == [(0, 1, 0), (0, 2, 1), (0, 3, 1), (1, 1, 2), (1, 2, 3), (1, 3, 3)]
    assert (kept.epoch, kept.batch, kept._commits) == (2, 0, 4)
    fit(model, *callbacks, initial_epoch=2, epochs=3)
    assert (kept.epoch, kept.batch) == (3, 0)


def test_a_batch_goes_on_from_where_the_state_is(alone):
    model = compiled()
    kept = khvd.elastic.KerasState(model, batch=1)
    seen = []
    see = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(kept.batch))
    fit(model, khvd.elastic.UpdateBatchStateCallback(kept), see, batches=2)
    assert seen == [2, 3]
    assert kept.batch == 0


@pytest.mark.parametrize(
    ("make", "own"),
    [
        (lambda **given: hvd.elastic.TensorFlowState([tf.Variable(1.0)], **given), {"variables"}),
        (lambda **given: khvd.elastic.KerasState(network("float32", 0), **given), {"model", "optimizer"}),
    ],
    ids=["variables", "Keras"],
)
def test_keywords_may_have_any_name_but_those_of_methods(alone, make, own):
    kept = make(commits=0, to_copy=1, from_copy=[2])
    names = {name for name in dir(kept) if not name.startswith("_")}
    names -= {name for name in dir(hvd.elastic.State) if not name.startswith("_")}
    assert names == {*own, "commits", "to_copy", "from_copy"}
    kept.commit()
    kept.commits, kept.from_copy = 9, 9
    kept.restore()
    assert (kept.commits, kept.to_copy, kept.from_copy) == (0, 1, [2])


@pytest.mark.parametrize(("name", "needed"), [("UpdateBatch", "batch"), ("UpdateEpoch", "epoch")])
def test_a_state_without_the_attribute_is_refused(alone, name, needed):
    kept = khvd.elastic.KerasState(compiled())
    with pytest.raises(ValueError, match=f"the state has no '{needed}' to keep"):
        getattr(khvd.elastic, f"{name}StateCallback")(kept)
    with pytest.raises(ValueError, match="batches_per_commit=0 must be at least 1"):
        khvd.elastic.CommitStateCallback(kept, 0)


def _models_synced():
    model = compiled()
    kept = khvd.elastic.KerasState(model, epoch=hvd.rank())
    if hvd.rank() == 1:
        kept.save()
        kept._commits = 3
    mine = hvd.allgather_object(everything(model))
    kept.sync()
    everybodys = hvd.allgather_object(everything(model))
    return everybodys == [mine[1]] * 2, mine[0] != mine[1], kept.epoch, kept._commits


def test_all_take_the_model_of_the_rank_with_the_most_commits():
    assert world(2).run(_models_synced) == [(True, True, 1, 3)] * 2


def _passes_are_forgotten():
    model = compiled(backward_passes_per_step=2)
    kept = khvd.elastic.KerasState(model)
    kept.sync()
    before = bits(model.weights)
    fit(model, batches=1)  # one of two passes
    kept.restore()
    fit(model, batches=1)
    same = bits(model.weights) == before
    fit(model, batches=1)
    return same, bits(model.weights) != before


def test_passes_of_a_step_that_was_not_complete_are_forgotten():
    assert world(2).run(_passes_are_forgotten) == [(True, True)] * 2


# ---- Another number of ranks, the same graph


def _outlives_its_world():
    """Graphs that are traced on two ranks, and used in a world of one."""
    hvd.init()
    local, shared = tf.Variable([0.0]), tf.Variable([0.0])

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(local) + tf.reduce_sum(shared)
        distributed = hvd.PartialDistributedGradientTape(tape)
        distributed.register_local_source(local)
        return distributed.gradient(loss, [local, shared])

    @tf.function
    def gathered(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(hvd.allgather(x, name="rows") * 3.0)
            loss += tf.reduce_sum(hvd.reducescatter(x, op=hvd.Sum, name="scatter"))
            loss += tf.reduce_sum(hvd.broadcast(x, root_rank=0, name="root"))
        return tape.gradient(loss, x)

    def results():
        return [each.numpy().tolist() for each in gradients()], gathered(tf.ones((2, 1))).numpy().tolist()

    def traced():
        return [each.experimental_get_tracing_count() for each in (gradients, gathered)]

    together, before = results(), traced()
    hvd.barrier()
    number = hvd.rank()
    start.shutdown()
    start.enter_epoch(Rendezvous(environment.World()), (number,), 1, lambda: None, lambda mine: [mine])
    return together, results(), traced() == before


def test_a_graph_asks_for_the_ranks_when_it_runs():
    for rank, (together, by_itself, same) in enumerate(spawn(2, _outlives_its_world, timeout=120)):
        of_root = 1.0 if rank == 0 else 0.0
        assert together == ([[0.5], [1.0]], [[3.0 + 2.0 + of_root]] * 2)
        assert by_itself == ([[1.0], [1.0]], [[3.0 + 1.0 + 1.0]] * 2)
        assert same


# ---- Errors


def test_errors_of_a_lost_rank_are_recoverable_and_others_are_not(monkeypatch):
    internal = tf.errors.InternalError(None, None, "something of XLA's")
    monkeypatch.setattr(_errors, "lost_rank", lambda: None)
    assert _errors.recoverable(internal) is None
    monkeypatch.setattr(_errors, "lost_rank", lambda: (3, "it was killed"))
    assert str(_errors.recoverable(internal)) == "rank 3 is lost: it was killed"
    assert _errors.recoverable(tf.errors.InvalidArgumentError(None, None, "a shape")) is None


def test_what_the_function_raises_is_not_swallowed(alone):
    def fail(state):
        raise tf.errors.InvalidArgumentError(None, None, "a shape")

    with pytest.raises(tf.errors.InvalidArgumentError, match="a shape"):
        hvd.elastic.run(fail)(hvd.elastic.ObjectState(step=0))


def test_the_result_of_the_function_is_returned(alone):
    assert hvd.elastic.run(lambda state, more, by=1: more + by)(hvd.elastic.ObjectState(step=0), 40, by=2) == 42


def test_numpy_and_tensors_as_attributes(alone):
    kept = hvd.elastic.ObjectState(array=np.ones(2))
    kept.commit()
    kept.array[0] = 5
    kept.restore()
    assert kept.array.tolist() == [1.0, 1.0]
