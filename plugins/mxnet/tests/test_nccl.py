"""Arrays on a GPU, carried by NCCL as they lie: over a driver, an NCCL and an MXNet that have no GPU."""

import os
import signal

import farandole_mxnet as hvd
import mxnet as mx
import numpy as np
import pytest
from fake_gpus import mxnet_with_gpu, variables
from farandole.plugin.native import takes_device_memory
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(150)

LATE_US = 2000  # what a fake stream takes for each step, so that whoever does not wait for it reads garbage
DEVICE = mx.cpu(1)  # which farandole_mxnet is told is a GPU
FIRST = np.arange(1000.0, dtype=np.float32)


def run(ranks, body, tmp_path, **more):
    spawn(ranks, body, timeout=100, env={**variables(tmp_path), **more})


def begin(late_us=LATE_US):
    gpu = mxnet_with_gpu(0)
    hvd.init()
    gpu.set_delay(late_us)
    return gpu


def there(values):
    return mx.nd.array(values, ctx=DEVICE, dtype=values.dtype)


def same(array, values):
    return array.context == DEVICE and np.array_equal(array.asnumpy(), values)


def end(gpu, on_host=False):
    hvd.shutdown()
    gpu.check()
    assert (gpu.calls("cuMemHostAlloc") > 0) == on_host, "what went by pinned host memory"
    assert gpu.nccl.fake_nccl_live() == 0, "a communicator is left behind"


def reduce_where_they_lie():
    gpu = begin()
    assert takes_device_memory()
    rank, size = hvd.rank(), hvd.size()
    total = FIRST * size + sum(range(size))
    source = there(FIRST + rank)
    assert same(hvd.allreduce(source, op=hvd.Sum), total)
    assert same(source, FIRST + rank), "the input is not the output"
    assert hvd.allreduce_(source, op=hvd.Sum) is source
    assert same(source, total)
    results = [hvd.allreduce(there(FIRST + rank) * k, op=hvd.Sum, name=f"t{k}") * 2 for k in range(8)]
    assert all(same(each, 2 * k * total) for k, each in enumerate(results))
    assert gpu.calls("ncclAllReduce") == 10
    group = [there(FIRST + rank), there((FIRST + rank)[:6].reshape(2, 3)), there(np.full(3, rank, np.int64))]
    expected = [total, total[:6].reshape(2, 3), np.full(3, sum(range(size)))]
    assert all(map(same, hvd.grouped_allreduce(group, op=hvd.Sum), expected))
    assert hvd.grouped_allreduce_(group, op=hvd.Sum) == group
    assert all(map(same, group, expected))
    assert gpu.calls("ncclAllReduce") == 16
    end(gpu)


def test_arrays_are_reduced_where_they_lie(tmp_path):
    run(3, reduce_where_they_lie, tmp_path)


def send_where_they_lie():
    gpu = begin()
    for root in range(hvd.size()):
        source = there((FIRST + hvd.rank()).reshape(10, 100))
        assert same(hvd.broadcast(source, root), (FIRST + root).reshape(10, 100))
        assert same(source, (FIRST + hvd.rank()).reshape(10, 100)), "the input is not the output"
        assert hvd.broadcast_(source, root) is source
        assert same(source, (FIRST + root).reshape(10, 100))
    assert gpu.calls("ncclBroadcast") == 2 * hvd.size()
    end(gpu)


def test_arrays_are_sent_where_they_lie(tmp_path):
    run(3, send_where_they_lie, tmp_path)


def what_nccl_lacks():
    """The core stages it in pinned host memory; MXNet hears of its end once the copy back is made."""
    gpu = begin(20 * LATE_US)
    rank, size = hvd.rank(), hvd.size()
    results = [hvd.allreduce(there(FIRST * (k - rank)), op=hvd.Max, name=f"{k}") for k in range(3)]
    assert all(same(each + 1, FIRST * k + 1) for k, each in enumerate(results))
    in_place = there(FIRST * -rank)
    assert same(hvd.allreduce_(in_place, op=hvd.Max) + 1, FIRST * 0 + 1)
    vector = np.zeros(size, np.float32)
    vector[rank] = rank + 1.0
    assert same(hvd.allreduce(there(vector), op=hvd.Adasum), np.arange(1.0, size + 1))  # orthogonal: their sum
    assert gpu.calls("ncclAllReduce") == 0
    end(gpu, on_host=True)


def test_what_nccl_lacks_is_readable_when_it_is_complete(tmp_path):
    run(2, what_nccl_lacks, tmp_path)


def stay_with_the_host():
    """MXNet itself copies for operations whose results the C interface puts in host memory, and for several GPUs."""
    gpu = begin()
    rank, size = hvd.rank(), hvd.size()
    rows = there(np.full((size, 2), rank, np.float32))
    total = sum(range(size))
    assert same(hvd.reducescatter(rows, op=hvd.Sum), np.full((1, 2), total))
    assert hvd.allgather(rows).shape == (size * size, 2)
    assert hvd.alltoall(rows).asnumpy()[:, 0].tolist() == list(range(size))
    on_host, elsewhere = (mx.nd.full((2,), rank, ctx=context) for context in (mx.cpu(), mx.cpu(2)))
    for others in ([on_host], [elsewhere], [on_host, elsewhere]):
        results = hvd.grouped_allreduce([rows, *others], op=hvd.Sum)
        assert [each.context for each in results] == [DEVICE, *(each.context for each in others)]
        assert [each.asnumpy().max() for each in results] == [total] * len(results)
    assert hvd.allreduce(on_host, op=hvd.Sum).asnumpy().tolist() == [total] * 2
    assert gpu.calls("ncclAllReduce") == gpu.calls("ncclReduceScatter") == 0
    assert same(hvd.allreduce(rows, op=hvd.Sum), np.full((size, 2), total)), "the ranks are in step"
    assert gpu.calls("ncclAllReduce") == 1
    end(gpu)


def test_other_operations_and_arrays_in_several_places_go_by_host_memory(tmp_path):
    run(2, stay_with_the_host, tmp_path)


def without_nccl():
    gpu = begin()
    assert not takes_device_memory()
    assert same(hvd.allreduce(there(FIRST), op=hvd.Sum), FIRST * hvd.size())
    assert same(hvd.broadcast_(there(FIRST + hvd.rank()), 0), FIRST)
    end(gpu)


@pytest.mark.parametrize(("ranks", "backend"), [(2, "native"), (1, "nccl,native")])
def test_where_no_backend_takes_them_mxnet_copies_them_itself(tmp_path, ranks, backend):
    run(ranks, without_nccl, tmp_path, FARANDOLE_BACKEND=backend)


def trained(data, target, seed, make_trainer):
    """The parameters, one after the other, after five steps on `data`."""
    mx.random.seed(seed)
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(6, in_units=5, activation="tanh"), mx.gluon.nn.Dense(1, in_units=6))
    net.initialize(mx.init.Xavier(), ctx=DEVICE)
    trainer = make_trainer(net.collect_params())
    loss_of = mx.gluon.loss.L2Loss()
    for _ in range(5):
        with mx.autograd.record():
            loss = loss_of(net(there(data)), there(target))
        loss.backward()
        trainer.step(len(data))
    return np.concatenate([each.data().asnumpy().ravel() for each in net.collect_params().values()])


def of_an_optimizer(params):
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9))
    hvd.broadcast_parameters(params)
    return mx.gluon.Trainer(params, optimizer, kvstore=None)


def of_a_trainer(params):
    hvd.broadcast_parameters(params)
    return hvd.DistributedTrainer(params, "sgd", {"learning_rate": 0.1, "momentum": 0.9}, num_groups=2)


def of_one_process(params):
    return mx.gluon.Trainer(params, "sgd", {"learning_rate": 0.1, "momentum": 0.9}, kvstore=None)


def train(make_trainer):
    gpu = begin()
    random = np.random.RandomState(7)
    data = random.randn(16 * hvd.size(), 5).astype(np.float32)
    target = random.randn(16 * hvd.size(), 1).astype(np.float32)
    mine = slice(16 * hvd.rank(), 16 * (hvd.rank() + 1))
    result = trained(data[mine], target[mine], hvd.rank(), make_trainer)
    assert gpu.calls("ncclAllReduce") == 5 * 4 and gpu.calls("ncclBroadcast") == 4
    expected = trained(data, target, 0, of_one_process)
    assert np.allclose(result, expected, atol=1e-6)
    end(gpu)


@pytest.mark.parametrize("make_trainer", [of_an_optimizer, of_a_trainer])
def test_gradients_are_averaged_by_nccl_and_train_like_one_process(tmp_path, make_trainer):
    spawn(2, train, make_trainer, timeout=100, env=variables(tmp_path))


def fork_with_pending():
    gpu = begin(5 * LATE_US)
    results = [hvd.allreduce(there(FIRST), op=op, name=f"{op}") for op in (hvd.Sum, hvd.Max)]
    pid = os.fork()
    if pid == 0:
        try:
            hvd.allreduce(mx.nd.ones((3,))).asnumpy()
        except hvd.NotInitializedError:
            os._exit(7)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert same(results[0], FIRST * 2) and same(results[1], FIRST)
    end(gpu, on_host=True)


def test_a_fork_comes_between_operations(tmp_path):
    run(2, fork_with_pending, tmp_path)


def leave_early():
    gpu = begin(10 * LATE_US)
    results = [hvd.allreduce(there(FIRST), op=op, name=f"{op}") for op in (hvd.Sum, hvd.Max) * 3]
    end(gpu, on_host=True)
    assert all(same(each, FIRST * (2 - k % 2)) for k, each in enumerate(results))


def test_operations_in_flight_are_completed_by_shutdown(tmp_path):
    run(2, leave_early, tmp_path)


def the_naive_engine():
    gpu = begin()
    x = there(FIRST + hvd.rank())
    assert same(hvd.allreduce(x, op=hvd.Sum), FIRST * 2 + 1)
    assert same(hvd.allreduce_(x, op=hvd.Max), FIRST + 1)
    with pytest.raises(hvd.MismatchError, match="bad"):
        hvd.allreduce(there(FIRST[: 5 + hvd.rank()]), name="bad").asnumpy()
    assert gpu.calls("ncclAllReduce") == 1
    end(gpu, on_host=True)


def test_the_naive_engine_gives_the_same(tmp_path):
    run(2, the_naive_engine, tmp_path, MXNET_ENGINE_TYPE="NaiveEngine")


def fail():
    gpu = begin()
    bad = hvd.allreduce(there(FIRST[: 5 + hvd.rank()]), name="bad")
    with pytest.raises(hvd.MismatchError, match="bad"):
        (bad + 1).asnumpy()
    elsewhere = hvd.allreduce(mx.nd.ones((5,), ctx=DEVICE if hvd.rank() == 0 else mx.cpu()), name="elsewhere")
    with pytest.raises(hvd.MismatchError, match="elsewhere"):
        elsewhere.asnumpy()
    assert same(hvd.allreduce(there(FIRST), op=hvd.Sum, name="bad"), FIRST * 2), "the job goes on"
    end(gpu)


def test_an_operation_that_fails_is_raised_where_it_is_read(tmp_path):
    run(2, fail, tmp_path)


# argv: how the allreduce goes that rank 1 does not live to see.
DYING = """
import os, signal, sys, time
from fake_gpus import mxnet_with_gpu
import farandole_mxnet as hvd
import mxnet as mx

gpu = mxnet_with_gpu(0)
hvd.init()
op = getattr(hvd, sys.argv[1])
assert hvd.allreduce(mx.nd.ones((10,), ctx=mx.cpu(1)), op=op)[0].asscalar() >= 1
if op == hvd.Sum:
    gpu.nccl.fake_nccl_hang()
else:
    gpu.set_delay(200000)
tensor = hvd.allreduce_(mx.nd.ones((100,), ctx=mx.cpu(1)), op=op, name="grad")
if hvd.rank() == 1:
    time.sleep(0.3 if op == hvd.Sum else 0.1)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    tensor.wait_to_read()
except hvd.PeerLostError as error:
    assert isinstance(error, mx.MXNetError) and "rank 1 (" in str(error), error
else:
    sys.exit("no error")
hvd.shutdown()
assert gpu.nccl.fake_nccl_live() == 0, "a communicator is left behind"
gpu.check()
"""


@pytest.mark.parametrize("op", ["Sum", "Max"])  # in the kernel of NCCL, and on the way to pinned memory
def test_ranks_that_survive_another_hear_of_it(tmp_path, op):
    script = tmp_path / "script.py"
    script.write_text(DYING)

    def env(rank):
        return {**variables(tmp_path), "CUDA_VISIBLE_DEVICES": str(rank)}

    ended = spawn(2, script, op, timeout=60, env=env, check=False)
    assert [rank.code for rank in ended] == [0, -signal.SIGKILL], "\n".join(rank.output for rank in ended)
