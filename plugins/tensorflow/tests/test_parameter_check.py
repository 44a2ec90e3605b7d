"""A warning where ranks train different models."""

import os

import farandole_tensorflow as hvd
import farandole_tensorflow.keras as khvd
import pytest
import tensorflow as tf
from digits_like import data, keras, network
from farandole._start import world as start
from farandole.plugin.parameter_check import world_number
from farandole.testing import World, spawn, world
from fitting import compiled, fit
from fitting import start as broadcasting
from logs import Logged

pytestmark = pytest.mark.timeout(300)
REMEDY = "Call broadcast_variables(model.variables, root_rank=0), or give fit the BroadcastGlobalVariablesCallback(0),"


def told(function, *args, **options):
    """What all ranks log in it."""
    with Logged() as warned:
        function(*args, **options)
    return [line for lines in hvd.allgather_object(warned.lines) for line in lines]


# ---- In fit


def forgotten_in_fit(options):
    model = compiled(**options)
    (line,) = told(fit, model)
    assert "on rank 1 is not that of rank 0 (4 parameters differ in all)" in line, line
    assert REMEDY in line and "kernel" in line
    assert told(fit, model) == []
    assert len(told(fit, compiled(model=unbuilt(), **options))) == 1


def unbuilt():
    keras.utils.set_random_seed(hvd.rank())
    return keras.Sequential([keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(3)])


@pytest.mark.parametrize("options", [{}, {"run_eagerly": True}, {"steps_per_execution": 2}], ids=str)
def test_a_broadcast_that_is_forgotten_in_fit(options):
    world(2).run(forgotten_in_fit, options)


def broadcast_by_the_callback():
    assert told(fit, compiled(), broadcasting()) == []
    assert told(fit, compiled(model=unbuilt()), broadcasting()) == []
    several = compiled(model=unbuilt(), steps_per_execution=2)
    assert told(fit, several, broadcasting(), batches=6) == []
    assert told(fit, several, batches=2) == []
    other = unbuilt()
    other.build((None, 6))
    assert len(told(fit, compiled(model=other))) == 1, "the callback puts off the comparisons until it broadcasts"


def passes_of_one_step():
    model = network("float32", hvd.rank())
    optimizer = khvd.DistributedOptimizer(keras.optimizers.SGD(0.05), backward_passes_per_step=2)
    model.compile(optimizer=optimizer, loss="mse", jit_compile=False)
    assert told(fit, model, batches=3) == []
    assert len(told(fit, model, batches=1)) == 1
    assert told(fit, model, batches=4) == []


def local_layers():
    model = network("float32", 3)
    model.layers[-1].set_weights([each + hvd.rank() for each in model.layers[-1].get_weights()])
    optimizer = khvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.05), local_layers=model.layers[-1])
    model.compile(optimizer=optimizer, loss="mse", jit_compile=False)
    assert told(fit, model) == []


def turned_off_on_one_rank():
    for rank in range(hvd.size()):
        if hvd.rank() == rank:
            os.environ["FARANDOLE_CHECK_PARAMETERS"] = "0"
        for eagerly in (False, True):
            assert told(fit, compiled(run_eagerly=eagerly)) == []
        os.environ.pop("FARANDOLE_CHECK_PARAMETERS", None)


def traced_at_different_times():
    """A smaller batch makes another trace: in the first fit in rank 0's second step, in the last one in rank 1's."""
    model = compiled()
    x, y, _ = data(3, "float32")
    for rank in range(hvd.size()):
        rows = [12, 5, 12] if hvd.rank() == rank else [12, 12, 5]
        pieces = [(x[:count], y[:count]) for count in rows]
        shapes = [tf.TensorSpec([None, each.shape[1]], tf.float32) for each in (x, y)]
        batches = tf.data.Dataset.from_generator(lambda some=pieces: iter(some), output_signature=tuple(shapes))
        lines = told(model.fit, batches, epochs=2, verbose=0)
        assert len(lines) == (rank == 0), lines


@pytest.mark.parametrize(
    "case",
    [
        broadcast_by_the_callback,
        passes_of_one_step,
        local_layers,
        turned_off_on_one_rank,
        traced_at_different_times,
    ],
)
def test_in_fit(case):
    world(2).run(case, timeout=120)


# ---- Tapes


def step_of(weights, local=(), tapes=1):
    """A step of a program of TensorFlow 2, with a tape of its own each time that it is traced, or called eagerly."""

    def step(x):
        found = []
        for _ in range(tapes):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum([tf.reduce_sum(each * x) ** 2 for each in weights])
            tape = hvd.DistributedGradientTape(tape)
            for each in local:
                tape.register_local_source(each)
            found.append(tape.gradient(loss, weights))
        for gradients in found:
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.assign_sub(0.01 * gradient)
        return loss

    return step


def eagerly(step):
    return step


def own_weights(count=2):
    return [tf.Variable([1.0 + hvd.rank(), float(each)], name=f"weight{each}") for each in range(count)]


def steps(step, count=3):
    for _ in range(count):
        step(tf.ones(2))


def tapes(wrap):
    weights = own_weights()
    (line,) = told(steps, wrap(step_of(weights)))
    assert "'weight0:0' on rank 1 is not that of rank 0 (2 parameters differ in all)" in line and REMEDY in line
    assert told(steps, wrap(step_of(weights))) == []
    assert told(steps, wrap(step_of(own_weights(1)))) != []


def broadcast_after_the_first_step(wrap):
    weights = own_weights()
    step = wrap(step_of(weights))
    step(tf.ones(2))
    hvd.broadcast_variables(weights, root_rank=0)
    assert told(steps, step) == []


def last_bits_that_differ_later(wrap):
    weights = own_weights()
    hvd.broadcast_variables(weights, root_rank=0)
    step = wrap(step_of(weights))
    step(tf.ones(2))
    weights[0].assign_add([1e-6 * hvd.rank(), 0.0])
    assert told(steps, step) == []


def local_sources(wrap):
    weights = own_weights()
    assert told(steps, wrap(step_of(weights, local=weights))) == []
    weights.append(tf.Variable([5.0, 5.0]))
    assert told(steps, wrap(step_of(weights, local=weights[:2]))) == []


def two_tapes_in_one_step(wrap):
    assert len(told(steps, wrap(step_of(own_weights(), tapes=2)))) == 1
    first, second = step_of(own_weights(1)), step_of(own_weights(3))
    assert len(told(steps, wrap(lambda x: first(x) + second(x)))) == 2


@pytest.mark.parametrize("wrap", [eagerly, tf.function], ids=["eagerly", "function"])
@pytest.mark.parametrize(
    "case",
    [tapes, broadcast_after_the_first_step, last_bits_that_differ_later, local_sources, two_tapes_in_one_step],
)
def test_tapes(case, wrap):
    world(2).run(case, wrap)


def called_at_once():
    """TensorFlow runs the calls of a function in any order."""
    weights = own_weights()
    inner = tf.function(step_of_gradients(weights))

    @tf.function
    def step(x):
        return inner(x), inner(2 * x), inner(3 * x)

    assert len(told(steps, step)) == 1

    twins = [tf.function(step_of_gradients(own_weights())) for _ in range(2)]

    @tf.function
    def both(x):
        return [twin(x) for twin in twins]

    assert len(told(steps, both)) == 2


def step_of_gradients(weights):
    def gradients(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights[0] * x) + tf.reduce_sum(weights[1] * x)
        return hvd.DistributedGradientTape(tape).gradient(loss, weights)

    return gradients


def test_functions_that_are_called_at_once():
    world(2).run(called_at_once)


def two_optimizers():
    models = [network("float32", 3 + hvd.rank()) for _ in range(2)]
    optimizers = [khvd.DistributedOptimizer(keras.optimizers.SGD(0.01)) for _ in models]

    @tf.function
    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            losses = [tf.reduce_sum(model(x)) for model in models]
        for loss, model, optimizer in zip(losses, models, optimizers, strict=True):
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for optimizer, model in zip(optimizers, models, strict=True):
        optimizer.build(model.trainable_variables)
    assert len(told(lambda: [step(tf.ones((2, 6))) for _ in range(3)])) == 2


def test_two_optimizers_in_one_program():
    world(2).run(two_optimizers)


def with_one_thread():
    """A thread that waited for another rank's comparison would keep this rank from computing gradients."""
    tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd.init()
    called_at_once()
    two_optimizers()


def test_one_thread_is_enough():
    with World(2, init=False) as two:
        two.run(with_one_thread, timeout=120)


# ---- Where ranks have taken different numbers of steps


def joined(wrap):
    """Rank 0 has data for one step, the others for three, which they do not compare with it."""
    for join in (hvd.join, tf.function(hvd.join)):
        step = wrap(step_of(own_weights()))

        def uneven(step=step, join=join):
            steps(step, 1 if hvd.rank() == 0 else 3)
            join()

        assert told(uneven) == []
        assert len(told(steps, step)) == 1


@pytest.mark.parametrize("wrap", [eagerly, tf.function], ids=["eagerly", "function"])
def test_ranks_that_have_joined(wrap):
    world(2).run(joined, wrap)


def another_world(wrap):
    """Ranks 0 and 1 go on with what they have traced; rank 2 takes the place of one that left, with a new process."""
    hvd.init()
    weights = own_weights()
    step = wrap(step_of(weights))
    before = told(steps, step, 5)
    hvd.barrier()
    is_new = hvd.rank() == 2
    hvd.shutdown()
    if is_new:
        start._state.worlds = 0
    hvd.init()
    if is_new:
        weights = own_weights()
        step = wrap(step_of(weights))
    assert hvd.allgather_object(world_number()) == [2, 2, 1]
    return len(before), len(told(steps, step, 5))


@pytest.mark.parametrize("wrap", [eagerly, tf.function], ids=["eagerly", "function"])
def test_survivors_and_newcomers_compare_together(wrap):
    assert spawn(3, another_world, wrap, timeout=120) == [(1, 1)] * 3
