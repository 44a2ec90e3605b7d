"""Mistakes are reported clearly, on all ranks, in time, and nothing hangs."""

import contextlib
import os
import signal
import time

import farandole_mxnet as hvd
import mxnet as mx
import pytest
from farandole.testing import RanksFailed, World, spawn, world

pytestmark = pytest.mark.timeout(180)


def sgd():
    return mx.optimizer.SGD(learning_rate=0.1)


def backward(net, *inputs):
    for each in inputs:
        with mx.autograd.record():
            loss = net(each).sum()
        loss.backward()


def goes_on():
    assert hvd.allreduce(mx.nd.ones((1,)), op=hvd.Sum).asscalar() == hvd.size()


def refused(call, *words, kind=ValueError):
    with pytest.raises(kind) as caught:
        call()
        mx.nd.waitall()
    text = str(caught.value)
    assert [word for word in words if word not in text] == [], text
    assert text.count(". ") == 0 or text.endswith("."), f"more than one sentence: {text}"
    goes_on()


def dense(**options):
    net = mx.gluon.nn.Dense(2, in_units=2)
    net.initialize(**options)
    return net


def several_contexts():
    net = dense(ctx=[mx.cpu(0), mx.cpu(1)])
    backward(net, mx.nd.ones((1, 2), ctx=mx.cpu(0)), mx.nd.ones((1, 2), ctx=mx.cpu(1)))
    for kvstore in ("device", "local"):
        trainer = mx.gluon.Trainer(net.collect_params(), hvd.DistributedOptimizer(sgd()), kvstore=kvstore)
        refused(lambda trainer=trainer: trainer.step(1), "kvstore=None")
    trainer = mx.gluon.Trainer(net.collect_params(), hvd.DistributedOptimizer(sgd()), kvstore=None)
    refused(lambda: trainer.step(1), "several contexts", "hvd.local_rank()")
    refused(lambda: hvd.DistributedTrainer(net.collect_params(), "sgd"), "several contexts")
    refused(lambda: hvd.broadcast_parameters(net.collect_params()), "several contexts")


def test_several_contexts_are_refused():
    world(2).run(several_contexts)


def several_contexts_of_a_module(kvstore):
    output = mx.sym.LinearRegressionOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1), name="out")
    module = mx.mod.Module(output, label_names=["out_label"], context=[mx.cpu(0), mx.cpu(1)])
    data = mx.io.NDArrayIter(mx.nd.ones((8, 2)), mx.nd.ones((8, 1)), batch_size=4, label_name="out_label")
    module.bind(data.provide_data, data.provide_label)
    module.init_params()
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(rescale_grad=1 / 4))

    def fit():
        module.init_optimizer(kvstore=kvstore, optimizer=optimizer)
        module.forward_backward(next(data))
        module.update()

    refused(fit, "context")


@pytest.mark.parametrize("kvstore", [None, "local"])
def test_several_contexts_of_a_module_are_refused(kvstore):
    world(2).run(several_contexts_of_a_module, kvstore)


def update_on_kvstore():
    net = dense()
    backward(net, mx.nd.ones((1, 2)))
    trainer = mx.gluon.Trainer(
        net.collect_params(), hvd.DistributedOptimizer(sgd()), kvstore=mx.kv.create("local"), update_on_kvstore=True
    )
    refused(lambda: trainer.step(1), "kvstore=None")


def test_updating_on_a_kvstore_is_refused():
    world(2).run(update_on_kvstore)


def wrapped_twice():
    refused(lambda: hvd.DistributedOptimizer(hvd.DistributedOptimizer(sgd())), "wrap it once")
    refused(lambda: hvd.DistributedOptimizer("sgd"), "mxnet.optimizer.Optimizer", "str")
    refused(lambda: hvd.DistributedOptimizer(sgd(), gradient_predivide_factor=-1.0), "positive")
    refused(lambda: hvd.DistributedOptimizer(sgd(), num_groups=-1), "negative")


def test_wrapping_what_cannot_be_wrapped_is_refused():
    world(2).run(wrapped_twice)


def row_sparse():
    net = mx.gluon.nn.Embedding(5, 2, sparse_grad=True)
    net.initialize()
    backward(net, mx.nd.array([1, 2]))
    made = mx.gluon.Trainer(net.collect_params(), hvd.DistributedOptimizer(sgd()), kvstore=None)
    refused(lambda: made.step(1), "row_sparse", "sparse_grad=False")
    made = hvd.DistributedTrainer(net.collect_params(), "sgd")
    refused(lambda: made.step(1), "row_sparse", "sparse_grad=False")
    refused(lambda: hvd.allreduce(net.weight.grad()), "tostype")


def test_sparse_gradients_are_refused():
    world(2).run(row_sparse)


def wrong_types():
    net, ones = dense(), mx.nd.ones((1,))
    for compression in ("fp16", True):
        named = f"not {compression!r}"
        refused(lambda c=compression: hvd.allreduce(ones, compression=c), "Compression.fp16", named, kind=TypeError)
        trainer = lambda c=compression: hvd.DistributedTrainer(net.collect_params(), "sgd", compression=c)  # noqa: E731
        refused(trainer, "Compression.fp16", named, kind=TypeError)
    refused(lambda: hvd.allreduce(ones, name=3), "name must be a string, not 3", kind=TypeError)
    refused(lambda: hvd.allreduce(ones, priority="1"), "priority must be a whole number, not '1'", kind=TypeError)
    refused(lambda: hvd.allreduce(ones, prescale_factor="2"), "prescale_factor must be a number", kind=TypeError)
    refused(lambda: hvd.broadcast(ones, 1.0), "root_rank must be a whole number, not 1.0", kind=TypeError)


def test_arguments_of_a_wrong_type_are_named():
    world(2).run(wrong_types)


def uninitialized():
    net = mx.gluon.nn.Dense(2, in_units=2)
    refused(lambda: hvd.broadcast_parameters(net.collect_params()), "initialize()")
    with pytest.raises(RuntimeError, match="initialize"):
        hvd.DistributedTrainer(net.collect_params(), "sgd")
    goes_on()


def test_parameters_must_be_initialized():
    world(2).run(uninitialized)


def no_gpu():
    """MXNet itself says so, before anything is sent."""
    for call in (
        lambda: hvd.allreduce(mx.nd.ones((2,), ctx=mx.gpu(0))),
        lambda: hvd.broadcast_parameters(dense(ctx=mx.gpu(0)).collect_params()),
        lambda: hvd.DistributedTrainer(dense(ctx=mx.gpu(0)).collect_params(), "sgd").step(1),
    ):
        with pytest.raises(mx.MXNetError, match="GPU"):
            call()
        goes_on()


def test_a_gpu_that_is_not_there_is_reported():
    world(2).run(no_gpu)


def other_networks():
    net = mx.gluon.nn.Dense(2 + hvd.rank(), in_units=2)
    net.initialize()
    refused(lambda: hvd.broadcast_parameters({"weight": net.weight}), "'parameters.weight'", "(2, 2)", "(3, 2)")
    made = hvd.DistributedTrainer(net.collect_params(), "sgd")
    line = other_networks.__code__.co_firstlineno + 7
    backward(net, mx.nd.ones((1, 2)))
    made.step(1)
    with pytest.raises(hvd.MismatchError, match=r"gradient\.") as caught:
        net.weight.data().asnumpy()
    assert f"test_bad_input.py:{line}" in str(caught.value), caught.value
    for _ in range(2):
        with pytest.raises(mx.MXNetError, match=r"gradient\."):
            made.step(1)
    with contextlib.suppress(hvd.MismatchError):
        mx.nd.waitall()  # of the other gradient, which nobody has read
    hvd.barrier()
    hvd.shutdown()
    hvd.init()


def test_ranks_whose_networks_differ_are_told():
    world(2).run(other_networks)


def die_in_a_step():
    """Rank 1 is killed while the others are in trainer.step; what they see, and when."""
    net = mx.gluon.nn.HybridSequential()
    net.add(*[mx.gluon.nn.Dense(256, in_units=256) for _ in range(4)])
    net.initialize()
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd")
    failed = None
    for step in range(100):
        backward(net, mx.nd.ones((4, 256)))
        if hvd.rank() == 1 and step == 5:
            _, first = min(net.collect_params().items())  # a trainer sorts them
            hvd.allreduce_(first.grad(), name="gradient.0")
            os.kill(os.getpid(), signal.SIGKILL)
        begun = time.monotonic()
        try:
            trainer.step(4)
            mx.nd.waitall()
        except mx.MXNetError as error:
            failed = error
            break
    assert isinstance(failed, hvd.PeerLostError)
    assert "rank 1" in str(failed)
    assert time.monotonic() - begun < 10
    for _ in range(2):
        with pytest.raises(hvd.PeerLostError, match="rank 1"):
            trainer.step(4)
    print("survived", flush=True)
    hvd.shutdown()


def test_a_rank_that_is_killed_is_named_by_the_others():
    with World(3, init=False) as ranks:
        ranks.run(hvd.init)
        with pytest.raises(RanksFailed, match="rank 1 exited with -9") as caught:
            ranks.run(die_in_a_step)
        assert "raised" not in str(caught.value)


def imported(version, script):
    script.write_text(f"""
import mxnet.base
original = mxnet.base._LIB.MXGetVersion
class Library:
    def __getattr__(self, name):
        return getattr(library, name)
    def MXGetVersion(self, out):
        out._obj.value = {version}
        return 0
library, mxnet.base._LIB = mxnet.base._LIB, Library()
import farandole_mxnet
""")
    return spawn(1, script, timeout=60, check=False)[0]


@pytest.mark.parametrize("version", [20000, 10900, 10800])
def test_other_versions_of_mxnet_are_refused(version, tmp_path):
    lines = imported(version, tmp_path / "script.py").output.strip().splitlines()
    assert lines[-1].startswith("ImportError: farandole-mxnet works with MXNet 1.9"), lines
    assert imported(10901, tmp_path / "script.py").code == 0
