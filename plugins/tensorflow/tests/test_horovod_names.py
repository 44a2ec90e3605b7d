"""Calls of scripts for Horovod, by position and by keyword, work here."""

import farandole_tensorflow as hvd
import pytest
import tensorflow as tf
from farandole.testing import spawn
from signatures import differences

_DEVICES = "device_dense='', device_sparse=''"
_SCALES = "prescale_factor=1.0, postscale_factor=1.0"
_SCOPE = "ignore_name_scope=False"
_IN_SET = "process_set=global_process_set"
_REDUCING = f"average=None, {_DEVICES}, compression=Compression.none, op=None, {_SCALES}"
_SCATTERING = "device_dense='', compression=Compression.none, op=Average"
SIGNATURES = {
    "allreduce": f"tensor, {_REDUCING}, name=None, {_IN_SET}, {_SCOPE}",
    "grouped_allreduce": f"tensors, {_REDUCING}, {_IN_SET}, {_SCOPE}, name=None",
    "allgather": f"tensor, name=None, {_SCOPE}, {_IN_SET}",
    "grouped_allgather": f"tensors, name=None, {_SCOPE}, {_IN_SET}",
    "broadcast": f"tensor, root_rank, name=None, {_SCOPE}, {_IN_SET}",
    "broadcast_": f"variables, root_rank, name=None, {_IN_SET}",
    "alltoall": f"tensor, splits=None, name=None, {_SCOPE}, {_IN_SET}",
    "reducescatter": f"tensor, {_SCATTERING}, name=None, {_IN_SET}, {_SCOPE}, {_SCALES}",
    "grouped_reducescatter": f"tensors, {_SCATTERING}, {_IN_SET}, {_SCALES}",
    "join": "",
    "rank_op": "name=None",
    "local_rank_op": "name=None",
    "local_size_op": "name=None",
    "size_op": "process_set_id=0, name=None",
    "process_set_included_op": "process_set_id=0, name=None",
    "broadcast_variables": f"variables, root_rank, {_IN_SET}, inplace=False",
    "broadcast_global_variables": "root_rank",
    "broadcast_object": f"obj, root_rank=0, session=None, name=None, {_IN_SET}",
    "broadcast_object_fn": f"root_rank=0, session=None, name=None, {_IN_SET}",
    "allgather_object": f"obj, session=None, name=None, {_IN_SET}",
    "BroadcastGlobalVariablesHook": "root_rank, device=''",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_functions_take_what_horovods_take_with_its_defaults(name):
    assert differences(hvd, name, SIGNATURES[name]) == []
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
