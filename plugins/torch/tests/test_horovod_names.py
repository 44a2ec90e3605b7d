"""Calls of scripts for Horovod, by position and by keyword, with its defaults, work here."""

import farandole_torch as hvd
from signatures import differences, found

SCALES = "prescale_factor=1.0, postscale_factor=1.0"
IN_SET = "process_set=global_process_set"
REDUCING = f"average=None, name=None, op=None, {SCALES}, {IN_SET}"
COMPRESSED = f"average=None, name=None, compression=Compression.none, op=None, {SCALES}, {IN_SET}"
SIGNATURES = {
    # common to its frameworks
    "init": "comm=None, process_sets=None",
    "shutdown": "",
    "is_initialized": "",
    "start_timeline": "file_path, mark_cycles=False",
    "stop_timeline": "",
    **dict.fromkeys(["size", "rank", "local_size", "local_rank", "cross_size", "cross_rank"], ""),
    "is_homogeneous": "",
    **dict.fromkeys(["mpi_threads_supported", "mpi_enabled", "mpi_built", "gloo_enabled", "gloo_built"], ""),
    **dict.fromkeys(["nccl_built", "ddl_built", "ccl_built", "cuda_built", "rocm_built"], ""),
    "ProcessSet": "ranks_or_comm",
    "ProcessSet.size": "self",
    "ProcessSet.rank": "self",
    "ProcessSet.included": "self",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
    # horovod.torch
    "allreduce": f"tensor, {COMPRESSED}",
    "allreduce_async": f"tensor, {REDUCING}",
    "allreduce_": f"tensor, {REDUCING}",
    "allreduce_async_": f"tensor, {REDUCING}",
    "grouped_allreduce": f"tensors, {COMPRESSED}",
    "grouped_allreduce_async": f"tensors, {REDUCING}",
    "grouped_allreduce_": f"tensors, {REDUCING}",
    "grouped_allreduce_async_": f"tensors, {REDUCING}",
    "sparse_allreduce_async": f"tensor, name, op, {IN_SET}",
    "allgather": f"tensor, name=None, {IN_SET}",
    "allgather_async": f"tensor, name=None, {IN_SET}",
    "grouped_allgather": f"tensors, name=None, {IN_SET}",
    "grouped_allgather_async": f"tensors, name=None, {IN_SET}",
    "broadcast": f"tensor, root_rank, name=None, {IN_SET}",
    "broadcast_async": f"tensor, root_rank, name=None, {IN_SET}",
    "broadcast_": f"tensor, root_rank, name=None, {IN_SET}",
    "broadcast_async_": f"tensor, root_rank, name=None, {IN_SET}",
    "alltoall": f"tensor, splits=None, name=None, {IN_SET}",
    "alltoall_async": f"tensor, splits=None, name=None, {IN_SET}",
    "reducescatter": f"tensor, name=None, compression=Compression.none, op=Average, {IN_SET}, {SCALES}",
    "reducescatter_async": f"tensor, name=None, op=Average, {IN_SET}, {SCALES}",
    "grouped_reducescatter": f"tensors, name=None, compression=Compression.none, op=Average, {IN_SET}, {SCALES}",
    "grouped_reducescatter_async": f"tensors, name=None, op=Average, {IN_SET}, {SCALES}",
    "poll": "handle",
    "synchronize": "handle",
    "join": "device=-1",
    "barrier": IN_SET,
    "broadcast_parameters": "params, root_rank",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None",
    "broadcast_object": f"obj, root_rank=0, name=None, {IN_SET}",
    "allgather_object": "obj, name=None",
    "DistributedOptimizer": "optimizer, named_parameters=None, compression=Compression.none, "
    "backward_passes_per_step=1, op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, "
    f"sparse_as_dense=False, {IN_SET}",
    "SyncBatchNorm": "num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True",
}
VALUES = """Average Sum Adasum Min Max Product global_process_set Compression.none.compress Compression.none.decompress
Compression.fp16.compress Compression.fp16.decompress HorovodInternalError mpi_ops mpi_ops.synchronize mpi_ops.poll
mpi_ops.allreduce_async_ mpi_ops.is_homogeneous global_process_set.process_set_id global_process_set.mpi_comm
ProcessSet.ranks""".split()


def lacks(name):
    try:
        found(hvd, name)
    except AttributeError:
        return True
    return name.partition(".")[0] not in hvd.__all__


def test_no_name_is_missing():
    assert [name for name in [*SIGNATURES, *VALUES] if lacks(name)] == []


def test_no_signature_or_default_differs():
    assert [text for name, theirs in SIGNATURES.items() for text in differences(hvd, name, theirs)] == []


def test_a_difference_would_be_seen():
    others = {"join": ["device=0", "other=-1"], "poll": [""], "rank": ["what"]}
    assert [theirs for name in others for theirs in others[name] if not differences(hvd, name, theirs)] == []
    assert lacks("no_such_name")


def test_what_is_caught_and_what_is_built():
    assert hvd.HorovodInternalError is hvd.RecoverableError
    assert hvd.gloo_built() and hvd.gloo_enabled()  # core/tests/python/test_builds.py has the others
