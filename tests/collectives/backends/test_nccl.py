"""Tensors on a GPU through farandole-torch, carried by NCCL: over a driver, a GPU and an NCCL that are none."""

import gc
import itertools
import os
import time
import weakref

import farandole_torch as hvd
import pytest
import torch
from fake_gpus import torch_with_gpu, variables
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(150)

LATE_US = 2000  # what a fake stream takes for each step, so that whoever does not wait for it reads garbage


def run(ranks, body, tmp_path, **more):
    spawn(ranks, body, timeout=100, env={**variables(tmp_path), **more})


def takes_device_memory():
    from farandole._runtime.native import core

    return core.takes_device_memory()


def begin():
    gpu = torch_with_gpu(0)
    hvd.init()
    assert takes_device_memory()
    return gpu


def late(gpu, values):
    """A tensor of garbage that has the values once the stream has come to there."""
    tensor = torch.full_like(values, -77.0)
    gpu.launch_copy(tensor, values)
    return tensor


def reduce_where_they_lie():
    gpu = begin()
    rank, size = hvd.rank(), hvd.size()
    mine, total = torch.arange(1000.0) + rank, torch.arange(1000.0) * size + sum(range(size))
    gpu.set_delay(LATE_US)
    source = late(gpu, mine)
    assert torch.equal(hvd.allreduce(source, op=hvd.Sum), total)
    assert torch.equal(source, mine), "the input is not the output"
    in_place = late(gpu, mine)
    assert hvd.allreduce_(in_place, op=hvd.Sum) is in_place
    assert torch.equal(in_place, total)
    kept = mine.clone()
    repeated = hvd.persistent_allreduce(kept, "kept", op=hvd.Sum)
    assert repeated() is kept and torch.equal(repeated.start().wait(), total * size)
    handles = [hvd.allreduce_async(late(gpu, mine * k), op=hvd.Sum, name=f"t{k}") for k in range(8)]
    for k, handle in enumerate(handles):
        assert torch.equal(handle.wait(), total * k)
    group = [late(gpu, mine), late(gpu, mine[:5]), torch.empty(0)]
    assert all(map(torch.equal, hvd.grouped_allreduce(group, op=hvd.Sum), [total, total[:5], torch.empty(0)]))
    hvd.grouped_allreduce_(group, op=hvd.Average)
    assert torch.allclose(group[1], total[:5] / size)
    sent = late(gpu, mine)
    assert torch.equal(hvd.broadcast(sent, 1), torch.arange(1000.0) + 1)
    assert torch.equal(hvd.broadcast_(sent, 0), torch.arange(1000.0))
    half = hvd.allreduce(late(gpu, mine), op=hvd.Sum, compression=hvd.Compression.bf16)
    assert half.dtype == torch.float32
    assert gpu.calls("ncclAllReduce") >= 12 and gpu.calls("ncclBroadcast") == 2
    assert gpu.calls("cuMemHostAlloc") == 0, "nothing went by host memory"
    gpu.check()
    hvd.shutdown()


def test_tensors_are_reduced_where_they_lie_after_the_current_stream(tmp_path):
    run(3, reduce_where_they_lie, tmp_path)


def reduce_between_hosts():
    if os.environ["FARANDOLE_RANK"] == "2":  # a host of its own
        os.environ["FARANDOLE_ARENAS"] = "0"
    gpu = begin()
    rank, size = hvd.rank(), hvd.size()
    mine, total = torch.arange(20000.0) + rank, torch.arange(20000.0) * size + sum(range(size))
    gpu.set_delay(LATE_US)
    source = late(gpu, mine)
    assert torch.equal(hvd.allreduce(source, op=hvd.Sum), total)
    assert torch.equal(source, mine), "the input is not the output"
    handles = [hvd.allreduce_async(late(gpu, mine * k), op=hvd.Sum, name=f"t{k}") for k in range(5)]
    for k, handle in enumerate(handles):
        assert torch.equal(handle.wait(), total * k)
    group = [late(gpu, mine), late(gpu, mine[:5]), torch.empty(0)]
    hvd.grouped_allreduce_(group, op=hvd.Average)
    assert torch.allclose(group[0], total / size) and torch.allclose(group[1], total[:5] / size)
    for root in range(size):
        assert torch.equal(hvd.broadcast(late(gpu, mine), root), torch.arange(20000.0) + root)
    rows = hvd.allgather(late(gpu, mine[:2]))
    assert torch.equal(rows, torch.cat([torch.arange(2.0) + each for each in range(size)]))
    assert gpu.nccl.fake_nccl_largest() == 0 and gpu.calls("cuMemHostAlloc") > 0, "native performs all of it"
    pair = hvd.add_process_set([0, 1])
    if rank < 2:
        assert torch.equal(hvd.allreduce(late(gpu, mine), op=hvd.Sum, process_set=pair), torch.arange(20000.0) * 2 + 1)
        assert gpu.nccl.fake_nccl_largest() == 2, "NCCL, inside a host"
    hvd.barrier()  # who shuts down ends the job for all
    gpu.check()
    hvd.shutdown()


def test_hosts_without_a_network_for_nccl_are_connected_by_native(tmp_path):
    run(3, reduce_between_hosts, tmp_path, FARANDOLE_NCCL_NETWORK="0")


def strided_and_mixed():
    gpu = begin()
    size = hvd.size()
    matrix = torch.arange(12.0).reshape(3, 4)
    assert torch.equal(hvd.allreduce_(matrix.t(), op=hvd.Sum), torch.arange(12.0).reshape(3, 4).t() * size)
    assert torch.equal(matrix, torch.arange(12.0).reshape(3, 4) * size), "into the strided tensor"
    assert gpu.calls("ncclAllReduce") == 1
    assert torch.equal(hvd.allreduce(torch.arange(3), op=hvd.Sum), torch.arange(3) * size), "on the host"
    assert gpu.calls("ncclAllReduce") == 1
    maximum = hvd.allreduce(torch.tensor([1.0, float(hvd.rank())]), op=hvd.Max)  # what NCCL lacks
    assert maximum.tolist() == [1.0, size - 1.0]
    assert gpu.calls("ncclAllReduce") == 1 and gpu.calls("cuMemHostAlloc") > 0
    gpu.check()
    hvd.shutdown()


def test_what_is_strided_is_staged_on_the_device_and_what_nccl_lacks_on_the_host(tmp_path):
    run(2, strided_and_mixed, tmp_path)


def copy_in_streams(gpu):
    """Have torch copy in its current stream; element by element, since the fake driver knows no strides."""

    def copy_(target, source):
        for index in itertools.product(*map(range, target.shape)):
            gpu.launch_copy(target[index], source[index])

    torch.Tensor.copy_ = copy_


def copy_back_late():
    gpu = begin()
    size = hvd.size()
    copy_in_streams(gpu)
    gpu.set_delay(LATE_US)
    matrix = torch.arange(6.0).reshape(2, 3)
    hvd.allreduce_(matrix.t(), op=hvd.Sum)
    assert torch.equal(matrix, torch.arange(6.0).reshape(2, 3) * size)
    handle = hvd.allreduce_async_(matrix.t(), op=hvd.Sum)
    gpu.change_stream(0)  # as another thread has one
    handle.wait()
    assert torch.equal(matrix, torch.arange(6.0).reshape(2, 3) * size * size)
    gpu.check()
    hvd.shutdown()


def test_a_wait_ends_when_the_copy_into_a_strided_tensor_has(tmp_path):
    run(2, copy_back_late, tmp_path)


def decompress_in_another_stream():
    gpu = begin()
    parameter = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=[("weight", parameter)], compression=hvd.Compression.bf16
    )
    for _ in range(2):  # from the second step on, gradients are submitted in backward()
        optimizer.zero_grad()
        (parameter * hvd.rank()).sum().backward()
        gpu.recorded.clear()
        gpu.change_stream(0)
        optimizer.step()
    assert gpu.recorded == [(torch.bfloat16, gpu.stream)]
    assert parameter.tolist() == [1.0 - (hvd.size() - 1)] * 4
    gpu.check()
    hvd.shutdown()


def test_torch_is_told_of_the_stream_that_decompresses(tmp_path):
    run(2, decompress_in_another_stream, tmp_path)


def train():
    gpu = begin()
    torch.manual_seed(7)
    data, target = torch.randn(hvd.size(), 16, 5), torch.randn(hvd.size(), 16, 1)
    trained = []
    for is_distributed in (True, False):
        torch.manual_seed(hvd.rank() if is_distributed else 0)
        model = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        mine = slice(hvd.rank(), hvd.rank() + 1) if is_distributed else slice(None)
        if is_distributed:
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        for _ in range(5):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(data[mine]), target[mine]).backward()
            optimizer.step()
        trained.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    assert torch.allclose(trained[0], trained[1], atol=1e-6)
    assert gpu.calls("ncclAllReduce") == 5 * 4 and gpu.calls("ncclBroadcast") >= 4
    assert gpu.calls("cuMemHostAlloc") == 0
    gpu.check()
    hvd.shutdown()


def test_an_optimizer_reduces_gradients_by_nccl_and_trains_like_one_process(tmp_path):
    run(2, train, tmp_path)


def move_rows():
    gpu = begin()
    rank, size = hvd.rank(), hvd.size()
    gpu.set_delay(LATE_US)

    def rows(count, of):
        return torch.full((count, 2), float(of))

    even = hvd.allgather(late(gpu, rows(2, rank)))
    assert torch.equal(even, torch.cat([rows(2, each) for each in range(size)]))
    uneven = hvd.allgather(late(gpu, rows(rank, rank)))  # rank 0 has none
    assert torch.equal(uneven, torch.cat([rows(each, each) for each in range(size)]))
    assert hvd.allgather(torch.empty(0, 4)).shape == (0, 4)
    assert torch.equal(hvd.alltoall(late(gpu, rows(size, rank))), torch.cat([rows(1, each) for each in range(size)]))
    splits = [rank + to for to in range(size)]
    got, counts = hvd.alltoall(late(gpu, rows(sum(splits), rank)), splits)
    assert counts.tolist() == splits
    assert torch.equal(got, torch.cat([rows(each + rank, each) for each in range(size)]))
    nothing, _ = hvd.alltoall(torch.empty(0, 2), [0] * size)
    assert nothing.shape == (0, 2)
    total = float(sum(range(size)))
    assert torch.equal(hvd.reducescatter(late(gpu, rows(size, rank)), op=hvd.Sum), rows(1, total))
    mean = hvd.reducescatter(late(gpu, rows(size + 1, rank)), op=hvd.Average)
    assert torch.allclose(mean, rows(2 if rank == 0 else 1, total / size))
    both = hvd.grouped_allgather([late(gpu, rows(1, rank)), late(gpu, rows(rank, 5))])
    assert [len(each) for each in both] == [size, sum(range(size))]
    for name in ("ncclAllGather", "ncclBroadcast", "ncclSend", "ncclRecv", "ncclReduceScatter", "ncclReduce"):
        assert gpu.calls(name) > 0, name
    assert gpu.calls("cuMemHostAlloc") == 0
    made, freed = gpu.calls("cuMemAlloc_v2"), gpu.calls("cuMemFree_v2")
    del even, uneven, got, nothing, mean, both
    gc.collect()
    gpu.settle()
    assert torch.equal(hvd.allgather(late(gpu, rows(1, rank))), torch.cat([rows(1, each) for each in range(size)]))
    assert (gpu.calls("cuMemAlloc_v2"), gpu.calls("cuMemFree_v2")) == (made, freed), "results are taken from the pool"
    gpu.check()
    hvd.shutdown()
    gc.collect()
    assert gpu.calls("cuMemFree_v2") == made, "the pool goes with the world"


def test_rows_move_by_nccl_and_results_lie_on_the_device(tmp_path):
    run(3, move_rows, tmp_path)


def drop_while_capturing():
    gpu = begin()
    result = hvd.allgather(torch.ones(1, 2))
    gpu.set_capturing(True)
    del result
    gc.collect()
    gpu.set_capturing(False)
    dropped = gpu.calls("cuCtxRecordEvent")
    assert torch.equal(hvd.allgather(torch.ones(1, 2)), torch.ones(hvd.size(), 2))
    assert gpu.calls("cuCtxRecordEvent") == dropped + 2, "both went back"
    gpu.check()
    hvd.shutdown()


def test_a_result_that_is_dropped_while_a_graph_is_captured_does_not_spoil_it(tmp_path):
    run(2, drop_while_capturing, tmp_path)


def differentiate():
    gpu = begin()
    size = hvd.size()
    tensor = torch.ones(3, requires_grad=True)
    (hvd.allgather(tensor).sum() * 2).backward()
    assert tensor.grad.tolist() == [2.0] * 3
    tensor.grad = None
    hvd.reducescatter(tensor.expand(size, 3).contiguous(), op=hvd.Sum).sum().backward()
    assert tensor.grad.tolist() == [float(size * size)] * 3
    gpu.check()
    hvd.shutdown()


def test_gradients_go_the_same_way(tmp_path):
    run(2, differentiate, tmp_path)


def drop_handles():
    gpu = begin()
    gpu.set_delay(20 * LATE_US)
    tensor = late(gpu, torch.ones(1000))
    seen = weakref.ref(tensor)
    hvd.allreduce_async_(tensor, op=hvd.Sum, name="dropped")
    del tensor
    gc.collect()
    assert seen() is not None, "the device has yet to write it"
    deadline = time.monotonic() + 60
    released = False
    while not released and time.monotonic() < deadline:
        hvd.barrier()
        released = all(hvd.allgather_object(seen() is None))
    assert released, "nobody needs it any more"
    gpu.check()
    hvd.shutdown()


def test_tensors_live_until_the_device_has_let_go_of_them(tmp_path):
    run(2, drop_handles, tmp_path)


def join_early():
    gpu = begin()
    for step in range(1 if hvd.rank() == 1 else 3):
        present = hvd.size() if step == 0 else hvd.size() - 1
        assert hvd.allreduce(torch.ones(4), op=hvd.Sum).tolist() == [float(present)] * 4
        assert len(hvd.allgather(torch.ones(2, 3))) == 2 * present
        assert hvd.reducescatter(torch.ones(6, 2), op=hvd.Sum)[0, 0].item() == present
    assert hvd.join() != 1
    gpu.check()
    hvd.shutdown()


def test_a_rank_that_has_joined_takes_part(tmp_path):
    run(3, join_early, tmp_path)


def refuse():
    begin()
    torch.cuda.is_current_stream_capturing = lambda: True
    with pytest.raises(ValueError, match="a CUDA graph that is being captured"):
        hvd.allreduce(torch.ones(3))
    torch.cuda.is_current_stream_capturing = lambda: False
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum)[0].item() == hvd.size(), "the ranks are in step"
    hvd.shutdown()


def test_an_operation_in_a_captured_graph_is_refused(tmp_path):
    run(2, refuse, tmp_path)


def stay_with_the_host():
    gpu = torch_with_gpu(0)
    hvd.init()
    assert not takes_device_memory()
    gpu.set_delay(LATE_US)
    handles = [hvd.allreduce_async(late(gpu, torch.ones(3) * k), op=hvd.Sum, name=f"t{k}") for k in range(8)]
    for k, handle in enumerate(handles):
        assert handle.wait().tolist() == [2.0 * k] * 3
    matrix = late(gpu, torch.arange(6.0).reshape(2, 3))
    gpu.synchronize()  # transposed tensors are copied at once here, by a torch for the host
    hvd.allreduce_(matrix.t(), op=hvd.Sum)
    assert torch.equal(matrix, torch.arange(6.0).reshape(2, 3) * 2)
    gathered = hvd.allgather(late(gpu, torch.full((hvd.rank() + 1, 2), float(hvd.rank()))))
    assert gathered.tolist() == [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    assert gpu.calls("cuMemHostAlloc") > 0 and gpu.calls("ncclAllReduce") == 0
    gpu.check()
    hvd.shutdown()


def test_without_nccl_in_the_list_the_core_stages_tensors_in_pinned_memory(tmp_path):
    run(2, stay_with_the_host, tmp_path, FARANDOLE_BACKEND="native")


def refuse_alone():
    torch_with_gpu(0)
    hvd.init()
    torch.cuda.is_current_stream_capturing = lambda: True
    with pytest.raises(ValueError, match="a CUDA graph that is being captured"):
        hvd.allreduce(torch.ones(3))
    hvd.shutdown()


def test_a_single_rank_is_refused_in_a_captured_graph_too(tmp_path):
    run(1, refuse_alone, tmp_path, FARANDOLE_BACKEND="native")
