"""horovod.mxnet: a program written for Horovod runs on two ranks, by horovodrun."""

import farandole_mxnet
import horovod.mxnet as hvd
from by_horovodrun import run_by_two
from names_of_horovod import OF_MXNET, missing, of_another_package

SCRIPT = """
import mxnet as mx
import horovod.mxnet as hvd

hvd.init()
mx.random.seed(hvd.rank())
net = mx.gluon.nn.Dense(1, in_units=2)
net.initialize(mx.init.Xavier())
parameters = net.collect_params()
hvd.broadcast_parameters(parameters, root_rank=0)
trainer = hvd.DistributedTrainer(parameters, "sgd", {"learning_rate": 0.1})
for step in range(2):
    with mx.autograd.record():
        loss = (net(mx.nd.random.uniform(shape=(4, 2))) ** 2).mean()
    loss.backward()
    trainer.step(1)
both = hvd.allgather(net.weight.data()).asnumpy()
print("equal", bool((both[0] == both[1]).all()), flush=True)
"""


def test_no_name_is_missing():
    assert missing(OF_MXNET) == []


def test_names_are_those_of_farandole():
    assert of_another_package(OF_MXNET, {"init", "Compressor", "handle_average_backwards_compatibility"}) == []
    assert hvd.init.__wrapped__ is farandole_mxnet.init


def test_a_script_runs_unchanged(tmp_path):
    lines, _ = run_by_two(tmp_path / "train.py", SCRIPT)
    assert lines == [f"[{rank}] equal True" for rank in (0, 1)]
