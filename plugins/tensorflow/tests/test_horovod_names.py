"""Calls of scripts for Horovod, by position and by keyword, work here."""

import inspect

import farandole_tensorflow as hvd
import pytest
import tensorflow as tf
from farandole.testing import spawn

_DEVICES = "device_dense device_sparse"
_SCALES = "prescale_factor postscale_factor"
SIGNATURES = {
    "allreduce": f"tensor average {_DEVICES} compression op {_SCALES} name process_set ignore_name_scope",
    "grouped_allreduce": f"tensors average {_DEVICES} compression op {_SCALES} process_set ignore_name_scope name",
    "allgather": "tensor name ignore_name_scope process_set",
    "grouped_allgather": "tensors name ignore_name_scope process_set",
    "broadcast": "tensor root_rank name ignore_name_scope process_set",
    "broadcast_": "variables root_rank name process_set",
    "alltoall": "tensor splits name ignore_name_scope process_set",
    "reducescatter": f"tensor device_dense compression op name process_set ignore_name_scope {_SCALES}",
    "grouped_reducescatter": f"tensors device_dense compression op process_set {_SCALES}",
    "join": "",
    "rank_op": "name",
    "local_rank_op": "name",
    "local_size_op": "name",
    "size_op": "process_set_id name",
    "process_set_included_op": "process_set_id name",
    "broadcast_variables": "variables root_rank process_set inplace",
    "broadcast_global_variables": "root_rank",
    "broadcast_object": "obj root_rank session name process_set",
    "broadcast_object_fn": "root_rank session name process_set",
    "allgather_object": "obj session name process_set",
    "BroadcastGlobalVariablesHook": "root_rank device",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_functions_take_what_horovods_take(name):
    taken = list(inspect.signature(getattr(hvd, name)).parameters)
    assert taken[: len(SIGNATURES[name].split())] == SIGNATURES[name].split()
    assert name in hvd.__all__


def test_the_hook_is_a_hook():
    assert issubclass(hvd.BroadcastGlobalVariablesHook, tf.compat.v1.train.SessionRunHook)


@pytest.mark.parametrize("name", ["none", "fp16", "bf16"])
def test_compression_is_static(name):
    compressor = getattr(hvd.Compression, name)
    sent, context = compressor.compress(tf.ones(2))
    assert sent.dtype == {"none": tf.float32, "fp16": tf.float16, "bf16": tf.bfloat16}[name]
    assert compressor.decompress(sent, context).dtype == tf.float32


def test_nothing_is_computed_at_import_and_init(tmp_path):
    """Threads, memory and visible devices can be configured after both."""
    script = tmp_path / "script.py"
    script.write_text(
        "import tensorflow as tf, farandole_tensorflow as hvd\n"
        "hvd.init()\n"
        "tf.config.threading.set_inter_op_parallelism_threads(1)\n"
        "tf.config.set_visible_devices([], 'GPU')\n"
        "assert hvd.allreduce(tf.ones(1)).numpy() == 1\n"
    )
    spawn(1, script, timeout=100)
