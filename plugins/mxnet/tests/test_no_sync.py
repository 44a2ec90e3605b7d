"""no_sync: accumulate over several batches, and average once."""

import farandole_mxnet as hvd
import mxnet as mx
import numpy as np
import pytest
from farandole.testing import world

pytestmark = pytest.mark.timeout(180)
BATCHES, ROWS = 3, 4


def part(rank, batch):
    """The rows of one rank's batch, which no other has."""
    return np.sin(np.arange(float(ROWS * 4)).reshape(ROWS, 4) + 100 * rank + 10 * batch)


def network(grad_req):
    net = mx.gluon.nn.Dense(2, in_units=4, weight_initializer=mx.init.Constant(0.25))
    net.cast("float64")
    net.initialize()
    net.collect_params().setattr("grad_req", grad_req)
    return net


def backward(net, rows):
    with mx.autograd.record():
        loss = (net(mx.nd.array(rows, dtype="float64")) ** 2).sum()
    loss.backward()


def parameters_of(net):
    return [each.data().asnumpy() for each in net.collect_params().values()]


def of_one_process(ranks):
    """The parameters after three steps, each by one batch that holds all rows of all ranks."""
    net = network("write")
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1 / 64}, kvstore=None)
    for _ in range(3):
        backward(net, np.concatenate([part(rank, batch) for rank in range(ranks) for batch in range(BATCHES)]))
        trainer.step(ranks)
    return parameters_of(net)


def trainer_of(net):
    return hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 1 / 64})


def wrapped(net):
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1 / 64))
    return mx.gluon.Trainer(net.collect_params(), optimizer, kvstore=None), optimizer


def accumulated(by_trainer):
    net = network("add")
    trainer, paused = [trainer_of(net)] * 2 if by_trainer else wrapped(net)
    for _ in range(3):
        with hvd.no_sync(paused):
            for batch in range(BATCHES - 1):
                backward(net, part(hvd.rank(), batch))
        backward(net, part(hvd.rank(), BATCHES - 1))
        trainer.step(1)
        net.collect_params().zero_grad()
    return parameters_of(net)


@pytest.mark.parametrize("by_trainer", [True, False], ids=["trainer", "optimizer"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_steps_are_those_of_one_process_with_all_rows(ranks, by_trainer):
    (expected,) = world(1).run(lambda: of_one_process(ranks))
    for parameters in world(ranks).run(accumulated, by_trainer):
        for one, other in zip(parameters, expected, strict=True):
            assert np.allclose(one, other, rtol=0, atol=1e-12)


def mistakes():
    net = network("write")
    trainer = trainer_of(net)
    with pytest.raises(hvd.ArgumentError, match=r"is overwritten by each backward\(\), not added to: call"):
        hvd.no_sync(trainer).__enter__()
    net.collect_params().setattr("grad_req", "add")
    other, optimizer = wrapped(net)
    for step, paused in ((trainer.step, trainer), (trainer.allreduce_grads, trainer), (other.step, optimizer)):
        with hvd.no_sync(paused):
            backward(net, part(0, 0))
            with pytest.raises(ValueError, match=r"inside no_sync\(\): leave it before"):
                step(*[1] * (step != trainer.allreduce_grads))
    backward(net, part(0, 0))
    trainer.step(1)
    with pytest.raises(ValueError, match=r"no_sync\(\) takes a DistributedTrainer, .* not Trainer"):
        hvd.no_sync(other)


def test_mistakes_are_refused():
    world(2).run(mistakes)


def metrics():
    return hvd.average_metrics({"array": mx.nd.array([hvd.rank() + 1]), "float": 0.5})


def test_arrays_of_one_element_are_metrics():
    assert world(2).run(metrics) == [{"array": 1.5, "float": 0.5}] * 2
