"""Training as a whole: the losses of one process with the same global batch, identical parameters, all wrappers."""

import copy
import logging

import farandole_mxnet as hvd
import mxnet as mx
import numpy as np
import pytest
from farandole.testing import world

pytestmark = pytest.mark.timeout(300)
GLOBAL_BATCH = 24  # divisible by 1, 2, 3 and 4


def network(dtype="float32", seed=11):
    """A small network with the same parameters for the same seed, hybridized."""
    values = np.random.RandomState(seed)
    net = mx.gluon.nn.HybridSequential()
    for inputs, outputs, activation in ((6, 32, "tanh"), (32, 32, "tanh"), (32, 3, None)):
        net.add(mx.gluon.nn.Dense(outputs, activation=activation, in_units=inputs, dtype=dtype))
    net.initialize()
    for parameter in parameters_of(net):
        parameter.set_data(mx.nd.array(values.uniform(-0.3, 0.3, parameter.shape), dtype=dtype))
    net.hybridize()
    return net


def parameters_of(net):
    return [parameter for layer in net for parameter in (layer.weight, layer.bias)]


def batch(step, dtype):
    """This rank's rows of the global batch of a step."""
    inputs = np.random.RandomState(1000 + step % 5).randn(GLOBAL_BATCH, 6)
    targets = np.stack([inputs.sum(1), inputs[:, 0] * inputs[:, 1], np.sin(inputs[:, 2])], 1)
    rows = slice(hvd.rank() * GLOBAL_BATCH // hvd.size(), (hvd.rank() + 1) * GLOBAL_BATCH // hvd.size())
    return mx.nd.array(inputs[rows], dtype=dtype), mx.nd.array(targets[rows], dtype=dtype)


def momentum():
    return mx.optimizer.SGD(learning_rate=0.05, momentum=0.9)


def wrapped(net, **options):
    return mx.gluon.Trainer(net.collect_params(), hvd.DistributedOptimizer(momentum(), **options), kvstore=None)


def trainer(net, **options):
    return hvd.DistributedTrainer(net.collect_params(), momentum(), **options)


def step_of(net, trainer, step, dtype):
    inputs, targets = batch(step, dtype)
    with mx.autograd.record():
        loss = (net(inputs) - targets).square().mean()
    loss.backward()
    trainer.step(
        1
    )  # MXNet keeps 1 / batch_size in float32, which would be another rounding for another number of ranks
    return loss


def train(make, dtype, steps, options=None):
    """The losses of the global batch, by step."""
    net = network(dtype)
    made = make(net, **(options or {}))
    losses = [hvd.allreduce(step_of(net, made, step, dtype)).astype("float64") for step in range(steps)]
    return [each.asscalar() for each in losses]


@pytest.mark.parametrize("make", [wrapped, trainer])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-2)])
def test_any_number_of_ranks_trains_alike(make, dtype, tolerance):
    runs = {ranks: world(ranks).run(train, make, dtype, 50)[0] for ranks in (1, 2, 3, 4)}
    assert runs[1][-1] <= runs[1][0] / 2
    for ranks, losses in runs.items():
        assert losses[-1] <= losses[0] / 2
        worst = max(abs(a - b) for a, b in zip(losses, runs[1], strict=True))
        assert worst <= tolerance, f"{ranks} ranks differ from one by {worst}"


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (wrapped, {"num_groups": 2}),
        (wrapped, {"gradient_predivide_factor": 4.0}),
        (trainer, {"num_groups": 1}),
        (trainer, {"num_groups": 4, "gradient_predivide_factor": 0.5}),
        (trainer, {"prefix": "mine."}),
    ],
    ids=str,
)
def test_options_change_how_and_not_what(make, options):
    plain = world(1).run(train, make, "float64", 10)[0]
    for losses in world(2).run(train, make, "float64", 10, options):
        assert max(abs(a - b) for a, b in zip(losses, plain, strict=True)) <= 1e-9


def train_compressed():
    return train(trainer, "float32", 30, {"compression": hvd.Compression.fp16})


def test_compressed_gradients_train_too():
    losses = world(2).run(train_compressed)[0]
    assert losses[-1] <= losses[0] / 2


def module_losses(steps):
    """The same network, symbolic, by Module and its update."""
    inputs, targets = mx.sym.Variable("data"), mx.sym.Variable("target")
    layer = inputs
    for number, width in enumerate((32, 32, 3)):
        layer = mx.sym.FullyConnected(layer, num_hidden=width, name=f"layer{number}")
        layer = mx.sym.tanh(layer) if number < 2 else layer
    error = mx.sym.mean(mx.sym.square(layer - targets), axis=1)
    module = mx.mod.Module(mx.sym.MakeLoss(error), data_names=["data"], label_names=["target"], context=mx.cpu())
    rows = GLOBAL_BATCH // hvd.size()
    module.bind([("data", (rows, 6))], [("target", (rows, 3))])
    arrays = [parameter.data() for parameter in parameters_of(network())]
    names = [f"layer{number}_{kind}" for number in range(3) for kind in ("weight", "bias")]
    module.init_params(arg_params=dict(zip(names, arrays, strict=True)), aux_params={})
    optimizer = mx.optimizer.SGD(learning_rate=0.05, momentum=0.9, rescale_grad=1 / rows)
    module.init_optimizer(kvstore=None, optimizer=hvd.DistributedOptimizer(optimizer))
    losses = []
    for step in range(steps):
        module.forward_backward(mx.io.DataBatch(*[[each] for each in batch(step, "float32")]))
        module.update()
        losses.append(hvd.allreduce(module.get_outputs()[0].mean()).asscalar())
    return losses


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_module_trains_as_gluon_does(ranks):
    gluon = world(1).run(train, trainer, "float32", 20)[0]
    for losses in world(ranks).run(module_losses, 20):
        assert max(abs(a - b) for a, b in zip(losses, gluon, strict=True)) <= 1e-2


def diverge(make, broadcasts):
    """Returns whether parameters are equal after a few steps; they differ between the ranks unless broadcast first."""
    net = network(seed=hvd.rank())
    if broadcasts:
        hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    made = make(net)
    for step in range(5):
        step_of(net, made, step, "float32")
    bits = hvd.allgather_object([parameter.data().asnumpy().tobytes() for parameter in parameters_of(net)])
    return all(each == bits[0] for each in bits)


@pytest.mark.parametrize("make", [wrapped, trainer])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_parameters_stay_identical_bit_by_bit(make, ranks):
    assert world(ranks).run(diverge, make, True) == [True] * ranks


def test_without_the_broadcast_they_would_not():
    assert world(2).run(diverge, wrapped, False) == [False] * 2


def many_optimizers():
    """Every optimizer of MXNet's that works on dense gradients, against the same one without Farandole."""
    for name in ("sgd", "nag", "adam", "adagrad", "rmsprop", "adadelta", "ftrl", "adamax", "nadam", "signum", "lamb"):
        results = []
        for distributes in (True, False):
            optimizer = mx.optimizer.create(name, learning_rate=0.01)
            weight = mx.nd.array([1.0, -2.0, 3.0])
            if distributes:
                optimizer = hvd.DistributedOptimizer(optimizer)
            state = optimizer.create_state_multi_precision(0, weight)
            for step in range(3):
                gradient = mx.nd.array([0.5, step + 1, -1.0]) * (2 * hvd.rank() if distributes else hvd.size() - 1)
                optimizer.update_multi_precision(0, weight, gradient, state)
            results.append(weight.asnumpy().tolist())
        assert results[0] == results[1], name


def test_every_optimizer_sees_averages():
    world(2).run(many_optimizers)


def half_precision():
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0, multi_precision=True))
    weight = mx.nd.array([1.0], dtype="float16")
    state = optimizer.create_state_multi_precision(0, weight)
    optimizer.update_multi_precision(0, weight, mx.nd.array([hvd.rank()], dtype="float16"), state)
    assert weight.asscalar() == 0.5
    adam = hvd.DistributedOptimizer(mx.optimizer.Adam(learning_rate=0.1, multi_precision=True))
    state = adam.create_state_multi_precision(0, weight)
    adam.update_multi_precision(0, weight, mx.nd.array([hvd.rank() - 0.25], dtype="float16"), state)
    assert weight.dtype == np.float16
    assert weight.asscalar() < 0.5


def test_weights_of_half_precision_have_a_master_copy():
    world(2).run(half_precision)


def the_users_optimizer(folder):
    plain = momentum()
    optimizer = hvd.DistributedOptimizer(plain, gradient_predivide_factor=2.0)
    assert optimizer is plain
    assert isinstance(optimizer, mx.optimizer.SGD)
    assert type(optimizer).__name__ == "SGD"
    net = network()
    made = mx.gluon.Trainer(net.collect_params(), optimizer, kvstore=None)
    made.set_learning_rate(0.01)
    assert (made.learning_rate, optimizer.learning_rate) == (0.01, 0.01)
    step_of(net, made, 0, "float32")
    path = f"{folder}/states-{hvd.rank()}"
    made.save_states(path)
    again = mx.gluon.Trainer(net.collect_params(), hvd.DistributedOptimizer(momentum()), kvstore=None)
    again.load_states(path)
    assert again.learning_rate == 0.01
    step_of(net, again, 1, "float32")
    bits = hvd.allgather_object([parameter.data().asnumpy().tobytes() for parameter in parameters_of(net)])
    assert bits[0] == bits[1]
    assert type(copy.deepcopy(optimizer)).__mro__[1:3] == type(optimizer).__mro__[1:3]


def test_learning_rates_states_and_isinstance_work(tmp_path):
    world(2).run(the_users_optimizer, str(tmp_path))


def kvstores_of_one_context():
    """'local' and 'device' do nothing with one context."""
    losses = []
    for kvstore in (None, "local", "device"):
        net = network()
        made = mx.gluon.Trainer(net.collect_params(), hvd.DistributedOptimizer(momentum()), kvstore=kvstore)
        losses.append([step_of(net, made, step, "float32").asscalar() for step in range(3)])
    assert losses[0] == losses[1] == losses[2]


def test_kvstores_of_one_context_do_not_matter():
    world(2).run(kvstores_of_one_context)


def clip():
    net = network()
    made = trainer(net)
    inputs, targets = batch(0, "float32")
    with mx.autograd.record():
        loss = (net(inputs) - targets).square().mean(axis=1)
    loss.backward()
    made.allreduce_grads()
    norms = hvd.allgather_object(
        mx.gluon.utils.clip_global_norm([parameter.grad() for parameter in parameters_of(net)], 0.1)
    )
    assert norms[0] == norms[1]
    made.update(len(inputs))
    mx.nd.waitall()


def test_averaged_gradients_can_be_clipped():
    world(2).run(clip)


def only_the_set():
    pair = hvd.add_process_set([0, 2])
    for make in (
        lambda parameters: hvd.DistributedTrainer(parameters, "sgd", {"learning_rate": 1.0}, process_set=pair),
        lambda parameters: mx.gluon.Trainer(
            parameters, hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0), process_set=pair), kvstore=None
        ),
    ):
        layer = mx.gluon.nn.Dense(1, in_units=1, use_bias=False, weight_initializer="zeros")
        layer.initialize()
        made = make(layer.collect_params())
        with mx.autograd.record():
            loss = layer(mx.nd.array([[hvd.rank()]]))
        loss.backward()
        made.step(1)
        assert layer.weight.data().asscalar() == -1
    with mx.autograd.record():
        loss = layer(mx.nd.array([[hvd.rank()]]))
    loss.backward()
    hvd.remove_process_set(pair)
    with pytest.raises(ValueError, match="add_process_set"):
        made.step(1)


def test_gradients_are_averaged_in_a_process_set():
    world(3).run(only_the_set)


def tutorial(folder):
    """The loop of MXNet's tutorial on Horovod, as it stands there."""
    logging.getLogger().setLevel(logging.WARNING)
    context = mx.cpu(hvd.local_rank())
    rows = np.random.RandomState(3).rand(64, 6).astype(np.float32)
    train_data = mx.io.NDArrayIter(rows, (rows.sum(1) > 3).astype(np.float32), batch_size=8)
    model = mx.gluon.nn.HybridSequential()
    model.add(mx.gluon.nn.Dense(8, activation="relu"), mx.gluon.nn.Dense(2))
    model.hybridize()
    optimizer_params = {"momentum": 0.9, "learning_rate": 0.1 * hvd.size(), "rescale_grad": 1.0 / 8}
    opt = mx.optimizer.create("sgd", **optimizer_params)
    model.initialize(mx.init.Xavier(), ctx=context)
    params = model.collect_params()
    opt = hvd.DistributedOptimizer(opt)
    hvd.broadcast_parameters(params, root_rank=0)
    trainer = mx.gluon.Trainer(params, opt, kvstore=None)
    loss_fn = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    metric = mx.metric.Accuracy()
    for _ in range(8):
        train_data.reset()
        metric.reset()
        for batch in train_data:
            data = batch.data[0].as_in_context(context)
            label = batch.label[0].as_in_context(context)
            with mx.autograd.record():
                output = model(data.astype("float32", copy=False))
                loss = loss_fn(output, label)
            loss.backward()
            trainer.step(8)
            metric.update([label], [output])
    bits = hvd.allgather_object([parameter.data().asnumpy().tobytes() for parameter in params.values()])
    assert bits[0] == bits[1]
    return metric.get()[1]


def test_the_tutorial_of_mxnet_runs_as_written(tmp_path):
    assert min(world(2).run(tutorial, str(tmp_path))) > 0.6


def checkpoint(path):
    """Rank 0's parameters, on every rank."""
    net = mx.gluon.nn.Dense(1, in_units=2, weight_initializer=mx.init.Constant(hvd.rank() + 1))
    net.initialize()
    hvd.save_checkpoint(path, net.save_parameters)
    return hvd.load_checkpoint(path, mx.nd.load)["weight"].asnumpy().tolist()


def test_a_checkpoint_of_rank_0_reaches_all(tmp_path):
    assert world(2).run(checkpoint, str(tmp_path / "net.params")) == [[[1.0, 1.0]]] * 2
