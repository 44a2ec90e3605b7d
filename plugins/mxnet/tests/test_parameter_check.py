"""A warning where the ranks begin to train from different parameters."""

import farandole_mxnet as hvd
import mxnet as mx
import pytest
from farandole.testing import world
from logs import Logged

pytestmark = pytest.mark.timeout(180)


def logged(make, is_deferred, broadcasts):
    """What rank 0 logs in the first two steps of a network of each rank's own."""
    mx.random.seed(hvd.rank())
    net = mx.gluon.nn.Dense(2, use_bias=True, in_units=0 if is_deferred else 3)
    net.initialize()
    if broadcasts:
        hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    trainer = make(net)
    with Logged() as logged_here:
        for _ in range(2):
            with mx.autograd.record():
                loss = net(mx.nd.ones((1, 3))).sum()
            loss.backward()
            trainer.step(1)
    return logged_here.lines, f"{net.weight.name!r} on rank 1 is not that of rank 0."


def wrapped(net):
    return mx.gluon.Trainer(net.collect_params(), hvd.DistributedOptimizer(mx.optimizer.SGD()), kvstore=None)


def trainer(net):
    return hvd.DistributedTrainer(net.collect_params(), "sgd")


def compared():
    for make in (wrapped, trainer):
        for is_deferred in (False, True):
            assert logged(make, is_deferred, True)[0] == []
            lines, wanted = logged(make, is_deferred, False)
            assert len(lines) == (hvd.rank() == 0) and all(wanted in line for line in lines), lines
            assert all("Call broadcast_parameters(net.collect_params(), root_rank=0)" in line for line in lines)


def test_a_forgotten_broadcast_is_named_once():
    world(2).run(compared)
