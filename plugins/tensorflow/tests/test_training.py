"""Training as a whole: as one process with the same global batch, identical on all ranks; every wrapper."""

import farandole_tensorflow as hvd
import farandole_tensorflow.keras as khvd
import numpy as np
import pytest
import tensorflow as tf
from digits_like import bits, data, keras, network, same_everywhere, state
from farandole.testing import world

pytestmark = pytest.mark.timeout(400)

EPOCHS, BATCHES = 2, 10


def sgd():
    return keras.optimizers.SGD(0.05, momentum=0.9)


def apply(optimizer, gradients, model):
    optimizer.apply_gradients(list(zip(gradients, model.trainable_variables, strict=True)))


def fitted(dtype, options, wrap=khvd.DistributedOptimizer):
    """Weights after model.fit."""
    keras.backend.set_floatx(dtype)  # to which fit casts what it is given
    model = network(dtype)
    model.compile(optimizer=wrap(sgd(), **options), loss="mse", jit_compile=False)
    x, y, batch_size = data(BATCHES, dtype)
    model.fit(x, y, batch_size=batch_size, epochs=EPOCHS, shuffle=False, verbose=0)
    keras.backend.set_floatx("float32")
    return model.get_weights()


def taped(dtype, options, eagerly=False):
    """Weights after a loop with a tape."""
    model, optimizer = network(dtype), sgd()
    x, y, batch_size = data(BATCHES, dtype)

    def step(inputs, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(inputs, training=True) - targets))
        tape = hvd.DistributedGradientTape(tape, **options)
        apply(optimizer, tape.gradient(loss, model.trainable_variables), model)

    run = step if eagerly else tf.function(step)
    for _ in range(EPOCHS):
        for begin in range(0, len(x), batch_size):
            run(tf.constant(x[begin : begin + batch_size]), tf.constant(y[begin : begin + batch_size]))
    return model.get_weights()


def in_a_session(dtype, options):
    """Weights after a loop in a graph of TF1, computed by an optimizer of TF1."""
    x, y, batch_size = data(BATCHES, dtype)
    start = network(dtype).get_weights()
    graph = tf.Graph()
    with graph.as_default():
        inputs, targets = (tf.compat.v1.placeholder(dtype, [None, each.shape[1]]) for each in (x, y))
        variables = [tf.compat.v1.get_variable(f"v{i}", initializer=each) for i, each in enumerate(start)]
        layer = tf.tanh(tf.matmul(inputs, variables[0]) + variables[1])
        layer = tf.matmul(layer, variables[2]) + variables[3]
        loss = tf.reduce_mean(tf.square(layer - targets))
        optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.MomentumOptimizer(0.05, 0.9), **options)
        counter = tf.compat.v1.train.get_or_create_global_step()
        step = optimizer.minimize(loss, global_step=counter)
        initialize = tf.compat.v1.global_variables_initializer()
    with tf.compat.v1.Session(graph=graph) as session:
        session.run(initialize)
        for _ in range(EPOCHS):
            for begin in range(0, len(x), batch_size):
                rows = slice(begin, begin + batch_size)
                session.run(step, {inputs: x[rows], targets: y[rows]})
        assert session.run(counter) == EPOCHS * BATCHES
        return session.run(variables)


WAYS = [fitted, taped, in_a_session]
_ALONE = {}


def alone(way, dtype, options=None):
    key = (way.__name__, dtype, str(options))
    if key not in _ALONE:
        (_ALONE[key],) = world(1).run(way, dtype, options or {}, timeout=120)
    return _ALONE[key]


def apart(a, b):
    return max(np.abs(np.asarray(x) - np.asarray(y)).max() for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("way", WAYS)
def test_three_ranks_train_like_one(way):
    results = world(3).run(way, "float64", {}, timeout=120)
    assert all(bits(each) == bits(results[0]) for each in results)
    assert apart(results[0], alone(way, "float64")) <= 1e-9


def all_the_ways(dtype, many):
    return [way(dtype, dict(options)) for way, options in many]


_OPTIONS = [
    (fitted, {"num_groups": 2, "backward_passes_per_step": 1, "average_aggregated_gradients": True}),
    (fitted, {"groups": 1, "gradient_predivide_factor": 4.0}),
    (taped, {"groups": 3, "gradient_predivide_factor": 0.5}),
    (taped, {"sparse_as_dense": True, "num_groups": 1}),
    (in_a_session, {"num_groups": 2, "gradient_predivide_factor": 2.0}),
]


def test_two_ranks_train_like_one_with_any_options():
    answers = world(2).run(all_the_ways, "float64", _OPTIONS, timeout=180)
    for (way, options), *results in zip(_OPTIONS, *answers, strict=True):
        assert bits(results[0]) == bits(results[1]), (way.__name__, options)
        assert apart(results[0], alone(way, "float64")) <= 1e-9, (way.__name__, options)


def compressed_and_eager():
    plain = taped("float32", {})
    assert apart(plain, taped("float32", {}, eagerly=True)) <= 1e-6
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        assert 0 < apart(plain, fitted("float32", {"compression": compression})) <= 0.05
    return plain


def test_compressed_and_eager_steps_train_too():
    results = world(2).run(compressed_and_eager, timeout=120)
    assert bits(results[0]) == bits(results[1])
    assert apart(results[0], alone(taped, "float32")) <= 1e-2


def several_passes(ranks_way):
    """N passes over parts of a batch, and one over the whole of it, are the same update."""
    x, y, batch_size = data(6)
    model = network()
    before = bits(model.get_weights())
    optimizer = khvd.DistributedOptimizer(sgd(), backward_passes_per_step=3, average_aggregated_gradients=True)

    def step(inputs, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(inputs, training=True) - targets))
        apply(optimizer, tape.gradient(loss, model.trainable_variables), model)

    run = tf.function(step) if ranks_way == "function" else step
    for number in range(6):
        rows = slice(number * batch_size, (number + 1) * batch_size)
        run(tf.constant(x[rows]), tf.constant(y[rows]))
        assert (bits(model.get_weights()) == before) == (number < 2)
        assert int(optimizer.iterations) == number + 1
    return model.get_weights()


def thirds_at_once():
    x, y, batch_size = data(6)
    model = network()
    optimizer = khvd.DistributedOptimizer(sgd())
    for begin in (0, 3 * batch_size):
        rows = slice(begin, begin + 3 * batch_size)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x[rows], training=True) - y[rows]))
        apply(optimizer, tape.gradient(loss, model.trainable_variables), model)
    return model.get_weights()


@pytest.mark.parametrize("way", ["function", "eager"])
def test_several_passes_are_one_update(way):
    (expected,) = world(1).run(thirds_at_once)
    for ranks in (1, 2):
        for result in world(ranks).run(several_passes, way, timeout=120):
            assert apart(result, expected) <= 1e-9


def several_passes_in_a_session():
    with tf.Graph().as_default():
        given = tf.compat.v1.placeholder(tf.float64, [])
        variable = tf.compat.v1.get_variable("v", initializer=tf.constant(0.0, tf.float64))
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
        optimizer = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2, average_aggregated_gradients=True)
        counter = tf.compat.v1.train.get_or_create_global_step()
        step = optimizer.minimize(given * variable, global_step=counter)
        with tf.compat.v1.Session() as session:
            session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
            assert {each.op.name for each in tf.compat.v1.global_variables()} == {"v", "global_step"}
            seen = []
            for value in (1.0, 3.0, 5.0, 7.0):
                session.run(step, {given: value * (hvd.rank() + 1)})
                seen.append(float(session.run(variable)))
            assert session.run(counter) == 4
    mean = sum(range(1, hvd.size() + 1)) / hvd.size()
    assert seen == [0.0, -2 * mean, -2 * mean, -8 * mean]


@pytest.mark.parametrize("ranks", [1, 2])
def test_several_passes_in_a_session(ranks):
    world(ranks).run(several_passes_in_a_session)


def alternating_gradients():
    """Which variables have gradients differs from pass to pass, and rank 0 has a condition that the others have not."""
    variables = [tf.Variable([0.0]) for _ in range(3)]
    optimizer = khvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    optimizer.build(variables)

    def step(wanted, value):
        if hvd.rank() == 0:
            value = tf.cond(value > 0, lambda: value + 0, lambda: value)
        gradients = [tf.reshape(value, [1]) if place == wanted else None for place in range(3)]
        optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))

    functions = [tf.function(step), step]
    for _ in range(2):
        for run in functions:
            run(0, tf.constant(hvd.rank() + 1.0))
            run(1, tf.constant(10.0 * (hvd.rank() + 1.0)))
    mean = sum(range(1, hvd.size() + 1)) / hvd.size()
    return [float(each.numpy()[0]) / mean for each in variables]


def test_passes_need_not_have_the_same_gradients():
    for ranks in (1, 2):
        for result in world(ranks).run(alternating_gradients, timeout=120):
            assert result == [-4, -40, 0]


def sparse_gradients():
    """Rows that only one rank has looked up, and one that both have."""
    table = tf.Variable(tf.zeros([5, 2], tf.float64))
    looked_up = tf.constant([hvd.rank(), 4])
    for options, kind in (({}, tf.IndexedSlices), ({"sparse_as_dense": True}, tf.Tensor)):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, looked_up)) * (hvd.rank() + 1)
        gradient = hvd.DistributedGradientTape(tape, **options).gradient(loss, table)
        assert isinstance(gradient, kind)
        expected = [[0.5] * 2, [1.0] * 2, [0.0] * 2, [0.0] * 2, [1.5] * 2]
        assert tf.convert_to_tensor(gradient).numpy().tolist() == expected

    model = keras.Sequential([keras.layers.Input((2,), dtype="int32"), keras.layers.Embedding(5, 2, dtype="float64")])
    model.set_weights([np.zeros([5, 2])])
    for options in ({}, {"sparse_as_dense": True}, {"backward_passes_per_step": 1, "groups": 1}):
        model.compile(
            optimizer=khvd.DistributedOptimizer(keras.optimizers.SGD(1.0), **options), loss="mse", jit_compile=False
        )
        model.set_weights([np.zeros([5, 2])])
        model.fit(np.array([[hvd.rank(), 4]]), np.full([1, 2, 2], 2.0), batch_size=1, verbose=0)
        assert np.allclose(model.get_weights()[0], [[0.5] * 2, [0.5] * 2, [0] * 2, [0] * 2, [1.0] * 2], atol=1e-6)


def test_sparse_gradients_are_gathered():
    world(2).run(sparse_gradients, timeout=120)


def local_layers():
    model = network()
    last = model.layers[-1]
    x, y, batch_size = data(1)
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    own = tape.gradient(loss, model.trainable_variables)
    for scaled, factor in ((True, hvd.size()), (False, 1)):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        tape = hvd.PartialDistributedGradientTape(tape, local_layers=[last], scale_local_gradients=scaled)
        reduced = tape.gradient(loss, model.trainable_variables)
        assert same_everywhere(bits(reduced[:-2]))
        assert not same_everywhere(bits(reduced[-2:]))
        assert bits(reduced[-2:]) == bits([each / factor for each in own[-2:]])
    optimizer = khvd.PartialDistributedOptimizer(sgd(), local_layers=last)
    model.compile(optimizer=optimizer, loss="mse", jit_compile=False)
    model.fit(x, y, batch_size=batch_size, verbose=0)
    assert same_everywhere(bits(model.get_weights()[:-2]))
    assert not same_everywhere(bits(model.get_weights()[-2:]))


def test_local_layers_keep_their_gradients():
    world(2).run(local_layers, timeout=120)


def in_a_set():
    pair = hvd.add_process_set([0, 2])
    value = tf.Variable(0.0)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), process_set=pair)
    optimizer.apply_gradients([(tf.constant(float(hvd.rank())), value)])
    assert float(value) == -1
    with tf.GradientTape() as tape:
        loss = value * float(hvd.rank())
    assert float(hvd.DistributedGradientTape(tape, process_set=pair).gradient(loss, value)) == 1
    hvd.remove_process_set(pair)
    with pytest.raises(ValueError, match="add_process_set"):
        optimizer.apply_gradients([(tf.constant(1.0), value)])


def test_gradients_are_reduced_in_a_process_set():
    world(3).run(in_a_set, timeout=120)


def structures():
    a, b, c = tf.Variable(1.0), tf.Variable(2.0), tf.Variable(3.0)
    with tf.GradientTape(persistent=True) as plain:
        loss = (a * 3 + b * b) * (hvd.rank() + 1)
    tape = hvd.DistributedGradientTape(plain, op=hvd.Sum)
    assert tape is plain
    total = sum(rank + 1 for rank in range(hvd.size()))
    assert float(tape.gradient(loss, a)) == 3 * total
    found = tape.gradient(loss, {"b": b, "rest": [a, c]})
    assert (float(found["b"]), float(found["rest"][0]), found["rest"][1]) == (4 * total, 3 * total, None)
    (zero,) = tape.gradient(loss, [c], None, "zero")
    assert float(zero) == 0
    with hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Max) as tape:
        loss = a * float(hvd.rank())
    assert float(tape.gradient(loss, a)) == hvd.size() - 1


def test_a_tape_keeps_the_structure_of_its_sources():
    world(2).run(structures)


def loss_scaling(inside):
    """One rank's gradients overflow: no rank applies them, all halve the scale, and the next step is applied."""
    variable = tf.Variable([1.0, 2.0])
    scaled = keras.mixed_precision.LossScaleOptimizer
    plain = keras.optimizers.SGD(1.0)
    optimizer = scaled(khvd.DistributedOptimizer(plain)) if inside else khvd.DistributedOptimizer(scaled(plain))
    assert isinstance(optimizer, scaled)
    assert type(optimizer).__name__.startswith("LossScaleOptimizer")
    is_keras3 = hasattr(optimizer, "scale_loss")

    @tf.function
    def step(gradient):
        scale = optimizer.dynamic_scale if is_keras3 else 1.0
        optimizer.apply_gradients([(gradient * scale, variable)])

    optimizer.build([variable])
    step(tf.constant([1.0, np.inf]) if hvd.rank() else tf.constant([1.0, 2.0]))
    assert variable.numpy().tolist() == [1, 2]
    step(tf.constant([0.0, 1.0]) if hvd.rank() else tf.constant([1.0, 0.0]))
    assert variable.numpy().tolist() == [0.5, 1.5]
    scale = optimizer.dynamic_scale if is_keras3 else optimizer.loss_scale
    assert float(scale) == 2.0**14


@pytest.mark.parametrize("inside", [True, False])
def test_ranks_decide_alike_about_overflown_gradients(inside):
    world(2).run(loss_scaling, inside, timeout=120)


def mixed_precision():
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(3)])
        model.compile(optimizer=khvd.DistributedOptimizer(sgd()), loss="mse", jit_compile=False)
        assert "LossScale" in type(model.optimizer).__name__
        x, y, batch_size = data(BATCHES, "float32")
        start = khvd.callbacks.BroadcastGlobalVariablesCallback(0)
        history = model.fit(x, y, batch_size=batch_size, epochs=5, callbacks=[start], verbose=0).history["loss"]
        assert history[-1] < history[0]
        assert same_everywhere(bits(model.get_weights()) + bits(state(model.optimizer)))
    finally:
        keras.mixed_precision.set_global_policy("float32")


def test_models_train_in_mixed_precision():
    world(2).run(mixed_precision, timeout=120)


def clipping():
    """Clipping acts on the reduced gradient."""
    value = tf.Variable([0.0, 0.0])
    optimizer = khvd.DistributedOptimizer(keras.optimizers.SGD(1.0, clipnorm=1.0))
    gradient = [6.0, 0.0] if hvd.rank() else [0.0, 8.0]
    optimizer.apply_gradients([(tf.constant(gradient), value)])
    assert np.allclose(value.numpy(), [-0.6, -0.8])


def test_clipping_comes_after_the_reduction():
    world(2).run(clipping)


def normalization():
    rng = np.random.RandomState(5)
    whole = rng.randn(9, 4).astype("float32")
    rows = slice(0, 6) if hvd.rank() == 0 else slice(6, 9)
    weights = tf.constant(rng.randn(9, 4), tf.float32)
    mine = tf.constant(whole[rows])
    layer, plain = hvd.SyncBatchNormalization(), keras.layers.BatchNormalization()
    with tf.GradientTape() as tape:
        tape.watch(mine)
        out = layer(mine, training=True)
        loss = tf.reduce_sum(out * weights[rows])
    gradient = tape.gradient(loss, mine)
    everything = tf.constant(whole)
    with tf.GradientTape() as tape:
        tape.watch(everything)
        expected = plain(everything, training=True)
        loss = tf.reduce_sum(expected * weights)
    wanted = tape.gradient(loss, everything)
    assert np.allclose(out, expected[rows], atol=1e-5)
    assert np.allclose(gradient, wanted[rows], atol=1e-4)
    for ours, theirs in zip(layer.get_weights(), plain.get_weights(), strict=True):
        assert np.allclose(ours, theirs, atol=1e-5)
    again = hvd.SyncBatchNormalization.from_config(layer.get_config())
    assert again.momentum == layer.momentum
    model = keras.Sequential(
        [keras.layers.Input((5, 5, 2)), hvd.SyncBatchNormalization(), keras.layers.Flatten(), keras.layers.Dense(1)]
    )
    model.compile(optimizer=khvd.DistributedOptimizer(sgd()), loss="mse", jit_compile=False)
    start = khvd.callbacks.BroadcastGlobalVariablesCallback(0)
    images = np.random.RandomState(hvd.rank()).randn(8, 5, 5, 2)
    model.fit(images, np.ones([8, 1]), callbacks=[start], verbose=0)
    assert same_everywhere(bits(model.get_weights()))


def no_values_on_one():
    rows = np.random.RandomState(5).randn(6, 4).astype("float32")
    mine = tf.constant(rows if hvd.rank() == 0 else rows[:0])
    everything = tf.constant(rows)
    layer, plain = hvd.SyncBatchNormalization(), keras.layers.BatchNormalization()
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([mine, everything])
        out, expected = layer(mine, training=True), plain(everything, training=True)
        loss, wanted = tf.reduce_sum(out**3), tf.reduce_sum(expected**3)
    some = slice(len(mine))
    assert np.allclose(out, expected[some], atol=1e-5)
    assert np.allclose(tape.gradient(loss, mine), tape.gradient(wanted, everything)[some], atol=1e-4)
    for ours, theirs in zip(layer.get_weights(), plain.get_weights(), strict=True):
        assert np.allclose(ours, theirs, atol=1e-5)


def test_a_rank_without_values_counts_for_nothing():
    world(2).run(no_values_on_one)


def far_from_zero(dtype, tolerance):
    values = np.random.RandomState(3).randn(64, 2).astype(dtype) + 3000
    layer = hvd.SyncBatchNormalization(dtype=dtype, momentum=0.0)
    layer(tf.constant(values[hvd.rank() :: hvd.size()]), training=True)
    *_, mean, variance = layer.get_weights()
    assert np.allclose(mean, values.mean(axis=0), rtol=1e-6)
    assert np.allclose(variance, values.astype("float64").var(axis=0), rtol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-2), ("float64", 1e-10)])
def test_a_small_variance_far_from_zero_is_kept(dtype, tolerance):
    world(2).run(far_from_zero, dtype, tolerance)


def test_batches_are_normalized_together():
    world(2).run(normalization, timeout=120)
    with pytest.raises(ValueError, match="fused"):
        hvd.SyncBatchNormalization(fused=True)


def checkpoints(folder):
    """Rank 0's values, of Keras's file and of a checkpoint's folder, on every rank."""
    model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1)])
    model.set_weights([np.full((1, 1), hvd.rank() + 1.0), np.zeros(1)])
    hvd.save_checkpoint(f"{folder}/model.keras", model.save)
    variable = tf.Variable(hvd.rank() + 1.0)
    checkpoint = tf.train.Checkpoint(variable=variable)
    hvd.save_checkpoint(f"{folder}/first", lambda path: checkpoint.write(f"{path}/state"))
    checkpoint.read(f"{folder}/first/state")
    return tf.keras.models.load_model(f"{folder}/model.keras").get_weights()[0].tolist(), float(variable)


def test_a_checkpoint_of_rank_0_reaches_all(tmp_path):
    assert world(2).run(checkpoints, str(tmp_path)) == [([[1.0]], 1.0)] * 2
