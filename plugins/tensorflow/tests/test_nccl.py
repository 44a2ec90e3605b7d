"""Tensors on a GPU, carried by NCCL: over a driver, a GPU and an NCCL that are none (core/tests/fake_cuda, fake_nccl).

TensorFlow has no GPU here, so the kernels that take tensors as they lie on one are those of its CPU, whose memory the
fake driver takes for its device's. Work that a GPU would do later is launched in a stream of the fake driver.
"""

import signal

import farandole_tensorflow as hvd
import farandole_tensorflow.keras as khvd
import numpy as np
import pytest
import tensorflow as tf
from digits_like import keras, network
from fake_gpus import Gpu, variables
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(200)

LATE_US = 2000  # what a fake stream takes for each step, so that whoever does not wait for it reads garbage
LIMIT_S = 100


def settings(folder):
    return {**variables(folder), "FARANDOLE_TENSORFLOW_DEVICE": "CPU"}


def begin():
    gpu = Gpu(0)
    hvd.init()
    return gpu


def late(gpu, values):
    """A tensor of garbage that has the values once the device has come to there."""
    tensor = tf.constant(np.full_like(values, -77.0))
    gpu.launch_copy(Memory(np.asarray(memoryview(tensor))), Memory(values))
    return tensor


class Memory:
    """Of an array, as `Gpu.launch_copy` wants it."""

    def __init__(self, array):
        self._array = array
        self.nbytes = array.nbytes

    def data_ptr(self):
        return self._array.ctypes.data


def reduce_where_they_lie():
    gpu = begin()
    rank, size = hvd.rank(), hvd.size()
    mine = np.arange(1000, dtype=np.float32) + rank
    total = np.arange(1000, dtype=np.float32) * size + sum(range(size))
    gpu.set_delay(LATE_US)
    source = late(gpu, mine)
    np.testing.assert_array_equal(hvd.allreduce(source, op=hvd.Sum), total)
    np.testing.assert_array_equal(source, mine, "the input is not the output")
    group = [late(gpu, mine), late(gpu, mine[:5]), tf.zeros([0])]
    for result, wanted in zip(hvd.grouped_allreduce(group, op=hvd.Sum), [total, total[:5], []], strict=True):
        np.testing.assert_array_equal(result, wanted)
    for root in range(size):
        np.testing.assert_array_equal(hvd.broadcast(late(gpu, mine), root), np.arange(1000) + root)
    half = hvd.allreduce(late(gpu, mine), op=hvd.Sum, compression=hvd.Compression.bf16)
    assert half.dtype == tf.float32
    assert gpu.calls("ncclAllReduce") >= 4 and gpu.calls("ncclBroadcast") == size
    assert gpu.calls("cuMemHostAlloc") == 0, "nothing went by host memory"
    assert gpu.calls("cuCtxRecordEvent") > 0, "the core has waited for the device"
    gpu.check()
    hvd.shutdown()


def reduce_what_nccl_lacks():
    gpu = begin()
    rank, size = hvd.rank(), hvd.size()
    gpu.set_delay(LATE_US)
    reduced = gpu.calls("ncclAllReduce")
    maximum = hvd.allreduce(late(gpu, np.float32([1.0, rank])), op=hvd.Max)
    np.testing.assert_array_equal(maximum, [1.0, size - 1.0])
    whole = hvd.allreduce(late(gpu, np.int16([rank, 300])), op=hvd.Sum)
    np.testing.assert_array_equal(whole, [sum(range(size)), 300 * size])
    assert gpu.calls("ncclAllReduce") == reduced and gpu.calls("cuMemHostAlloc") > 0
    assert np.shape(hvd.allgather(tf.ones([rank + 1, 2]))) == (sum(range(size + 1)), 2), (
        "which TensorFlow brings to host memory"
    )
    gpu.check()
    hvd.shutdown()


def train():
    gpu = begin()
    rank, size = hvd.rank(), hvd.size()
    gpu.set_delay(200)
    data = np.random.default_rng(3).normal(size=(size, 32, 6)).astype(np.float32)
    target = data[..., :3] * 2

    def trained(optimizer, model, x, y):
        model.compile(optimizer, "mse", jit_compile=False)
        model.fit(x, y, batch_size=len(x), epochs=4, verbose=0, shuffle=False)
        return model.get_weights()

    model = network("float32", seed=11 + rank)
    hvd.broadcast_variables(model.variables, root_rank=0)
    mine = trained(khvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), model, data[rank], target[rank])
    calls = gpu.calls("ncclAllReduce"), gpu.calls("ncclBroadcast")
    alone = trained(keras.optimizers.SGD(0.1), network("float32"), data.reshape(-1, 6), target.reshape(-1, 3))
    for weights, wanted in zip(mine, alone, strict=True):
        np.testing.assert_allclose(weights, wanted, rtol=1e-4, atol=1e-5)
    assert min(calls) > 0, calls
    gpu.check()
    hvd.shutdown()


def all_of_two_ranks():
    reduce_where_they_lie()
    reduce_what_nccl_lacks()
    train()


def test_tensors_are_reduced_and_trained_with_where_they_lie(tmp_path):
    spawn(2, all_of_two_ranks, timeout=150, env=settings(tmp_path))


def of_one_rank():
    gpu = begin()
    gpu.set_delay(LATE_US)
    np.testing.assert_array_equal(hvd.allreduce(late(gpu, np.float32([3, 4])), op=hvd.Average), [3, 4])
    gpu.check()
    hvd.shutdown()


def test_a_world_of_one_rank_has_its_own_values(tmp_path):
    spawn(1, of_one_rank, timeout=100, env=settings(tmp_path))


SCRIPT = """
import os, signal, sys, time
import tensorflow as tf
import farandole_tensorflow as hvd
from fake_gpus import Gpu

gpu = Gpu(0)
hvd.init()
assert hvd.allreduce(tf.ones([10]), op=hvd.Sum)[0] == hvd.size()
gpu.nccl.fake_nccl_hang()
if hvd.rank() == 1:
    import threading
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
try:
    hvd.allreduce(tf.ones([100]), op=hvd.Sum, name="grad")
except tf.errors.UnavailableError as error:
    os.write(1, " ".join(str(error).split()).encode())
else:
    sys.exit("no error")
hvd.shutdown()
gpu.check()
"""


def test_a_peer_that_is_killed_during_the_allreduce_is_named(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    survivor, killed = spawn(2, script, timeout=LIMIT_S, env=settings(tmp_path), check=False)
    assert killed.code == -signal.SIGKILL
    assert survivor.code == 0, survivor.output
    assert "rank 1 " in survivor.output and "died" in survivor.output and "'grad'" in survivor.output, survivor.output


def test_users_may_leave_the_copies_to_tensorflow(tmp_path):
    script = tmp_path / "says.py"
    script.write_text(
        "import os, farandole_tensorflow as hvd\n"
        "from farandole_tensorflow import _native\n"
        "assert os.environ.get('FARANDOLE_TENSORFLOW_DEVICE') == os.environ.get('WANTED')\n"
        "from tensorflow.python.framework import kernels\n"
        "found = kernels.get_registered_kernels_for_op('FarandoleAllreduce').kernel\n"
        "print([sorted(each.host_memory_arg) for each in found if each.device_type == 'GPU'])\n"
    )

    def ended(**more):
        return spawn(1, script, timeout=LIMIT_S, env=more, check=False)[0]

    for more, on_host in (
        ({"FARANDOLE_BACKEND": "nccl,native"}, [["token"]]),
        (
            {"FARANDOLE_BACKEND": "nccl", "FARANDOLE_TENSORFLOW_DEVICE": "none", "WANTED": "none"},
            [["results", "tensors", "token"]],
        ),
    ):
        code, output = ended(**more)
        assert code == 0, output
        assert output.split("\n")[-2] == str(on_host)
    assert "FARANDOLE_TENSORFLOW_DEVICE is 'gpu'; it may be GPU or none" in ended(FARANDOLE_TENSORFLOW_DEVICE="gpu")[1]
