"""farandole_torch on real GPUs: what tensors on the host cannot show. All ranks may share one GPU, see torch_device.

Every test runs in each of the ways in which a tensor on a GPU can travel.
"""

import copy
import gc
import os
import signal
import time

import farandole
import farandole_torch as hvd
import pytest
import torch
import torch_device
from farandole.testing import RanksFailed, spawn

WAYS = {
    "native": {"FARANDOLE_BACKEND": "native"},
    "nccl": {"FARANDOLE_BACKEND": "nccl,native"},
}
SLOW_CYCLES = 20_000_000  # about 10 ms of a GPU: whoever does not wait reads what was there before

pytestmark = pytest.mark.timeout(150)


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


def run(ranks, body, way, *args, **more):
    return spawn(ranks, body, *args, timeout=120, env={**way, **more})


def late(values):
    """A tensor of garbage that has the values once torch's current stream has come to there."""
    tensor = torch.full_like(values, -77)
    torch.cuda._sleep(SLOW_CYCLES)
    tensor.copy_(values)
    return tensor


def begin():
    """This rank, the number of ranks, and the device of its tensors."""
    hvd.init()
    torch.manual_seed(hvd.rank())
    return hvd.rank(), hvd.size(), torch.device(torch_device.DEVICE)


def reduce_late_tensors():
    rank, size, device = begin()
    mine = torch.arange(100_000.0, device=device) + rank
    total = torch.arange(100_000.0, device=device) * size + sum(range(size))
    source = late(mine)
    assert torch.equal(hvd.allreduce(source, op=hvd.Sum), total)
    assert torch.equal(source, mine), "the input is not the output"
    in_place = late(mine)
    assert hvd.allreduce_(in_place, op=hvd.Sum) is in_place
    assert torch.equal(in_place, total)
    handles = [hvd.allreduce_async(late(mine * k), op=hvd.Sum, name=f"t{k}") for k in range(8)]
    for k, handle in enumerate(handles):
        assert torch.equal(handle.wait(), total * k), k
    group = [late(mine), late(mine[:5]), torch.empty(0, device=device)]
    hvd.grouped_allreduce_(group, op=hvd.Average)
    assert torch.allclose(group[0], total / size) and torch.allclose(group[1], total[:5] / size)
    sent = late(mine)
    assert torch.equal(hvd.broadcast(sent, size - 1), torch.arange(100_000.0, device=device) + size - 1)
    half = hvd.allreduce(late(mine[:50]), op=hvd.Sum, compression=hvd.Compression.bf16)
    assert half.dtype == torch.float32 and torch.allclose(half, total[:50], rtol=1e-2)
    matrix = late(mine[:12].reshape(3, 4))
    hvd.allreduce_(matrix.t(), op=hvd.Sum)
    assert torch.equal(matrix, total[:12].reshape(3, 4)), "into a strided tensor"
    hvd.shutdown()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_tensors_are_reduced_once_the_stream_has_computed_them(ranks, way):
    run(ranks, reduce_late_tensors, way)


def move_late_rows():
    rank, size, device = begin()

    def rows(count, of):
        return torch.full((count, 2), float(of), device=device)

    even = hvd.allgather(late(rows(2, rank)))
    assert torch.equal(even, torch.cat([rows(2, each) for each in range(size)])) and even.device.type == device.type
    uneven = hvd.allgather(late(rows(rank, rank)))
    assert torch.equal(uneven, torch.cat([rows(each, each) for each in range(size)]))
    assert hvd.allgather(torch.empty(0, 4, device=device)).shape == (0, 4)
    splits = [rank + to for to in range(size)]
    got, counts = hvd.alltoall(late(rows(sum(splits), rank)), splits)
    assert counts.tolist() == splits
    assert torch.equal(got, torch.cat([rows(each + rank, each) for each in range(size)]))
    total = float(sum(range(size)))
    assert torch.equal(hvd.reducescatter(late(rows(size, rank)), op=hvd.Sum), rows(1, total))
    results = [hvd.allgather(late(rows(1000, rank))) for _ in range(20)]  # dropped while they are read
    sums = [each.sum() for each in results]
    del results, even, uneven, got
    gc.collect()
    assert {each.item() for each in sums} == {2000 * total}
    kept = hvd.allgather(rows(3, rank))
    hvd.shutdown()
    assert kept.sum().item() == 6 * total, "results outlive the world"


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_rows_are_moved_once_the_stream_has_computed_them(ranks, way):
    run(ranks, move_late_rows, way)


def use_other_streams():
    rank, size, device = begin()
    other, third = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(other):
        tensor = late(torch.full((100_000,), float(rank), device=device))
        handle = hvd.allreduce_async(tensor, op=hvd.Sum)
    with torch.cuda.stream(third):
        doubled = handle.wait() * 2  # every stream may use a result that was waited for
        third.synchronize()
    assert torch.equal(doubled, torch.full_like(doubled, 2.0 * sum(range(size))))
    hvd.shutdown()


def test_any_stream_may_compute_a_tensor_and_any_may_use_the_result(way):
    run(2, use_other_streams, way)


def network(device):
    torch.manual_seed(5)
    layers = [torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(64, 4)).to(device)


def train(precision):
    rank, size, device = begin()
    torch.manual_seed(7)
    data = torch.randn(size, 16, 32, device=device)
    target = torch.randn(size, 16, 4, device=device)
    trained = []
    for is_distributed in (True, False):
        model = network(device)
        if is_distributed and rank:
            torch.nn.init.zeros_(model[0].weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        mine = slice(rank, rank + 1) if is_distributed else slice(None)
        if is_distributed:
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        scaler = torch.amp.GradScaler("cuda", enabled=precision != "float32")
        for _ in range(10):
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16, enabled=precision != "float32"):
                loss = torch.nn.functional.mse_loss(model(data[mine]).float(), target[mine])
            scaler.scale(loss).backward()
            if is_distributed and precision == "float32":
                optimizer.synchronize()  # a scaler that scales does it when it unscales
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            scaler.step(optimizer)
            scaler.update()
        trained.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    slack = 1e-6 if precision == "float32" else 5e-3
    assert torch.allclose(trained[0], trained[1], atol=slack), (trained[0] - trained[1]).abs().max()
    everybody = hvd.allgather(trained[0][None])
    assert all(torch.equal(everybody[0], each) for each in everybody), "the ranks have the same bits"
    hvd.shutdown()


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_an_optimizer_trains_like_one_process(precision, way):
    run(2, train, way, precision)


def normalize_and_embed():
    rank, size, device = begin()
    torch.manual_seed(3)
    images = torch.randn(size * 4, 3, 5, 5, device=device, requires_grad=True)
    mine = images.detach()[rank * 4 : rank * 4 + 4].requires_grad_()
    ours, whole = hvd.SyncBatchNorm(3).to(device), torch.nn.BatchNorm2d(3).to(device)
    output, expected = ours(mine), whole(images)
    output.square().sum().backward()
    expected.square().sum().backward()
    part = slice(rank * 4, rank * 4 + 4)
    assert torch.allclose(output, expected[part], atol=1e-5)
    assert torch.allclose(mine.grad, images.grad[part], atol=1e-4)
    assert torch.allclose(ours.running_var, whole.running_var, atol=1e-5)
    table = torch.nn.Embedding(10, 3, sparse=True, device=device)
    hvd.broadcast_parameters(table.state_dict(), root_rank=0)
    before = table.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), table.named_parameters())
    table(torch.tensor([rank, 9], device=device)).sum().backward()
    optimizer.step()
    step = before - table.weight.detach()
    assert torch.allclose(step[9], torch.ones(3, device=device)) and torch.allclose(step[rank], step[0])
    hvd.shutdown()


def test_batch_normalization_and_sparse_gradients(way):
    run(2, normalize_and_embed, way)


def capture():
    rank, size, device = begin()
    static = torch.zeros(1000, device=device)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        (static * 2 + 1).sum()
    torch.cuda.synchronize()
    result = hvd.allgather(torch.ones(1, 2, device=device))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = static * 2 + 1
        with pytest.raises(ValueError, match="a CUDA graph that is being captured"):
            hvd.allreduce(captured)
        del result  # must not spoil the capture
        gc.collect()
    for step in range(5):
        static.fill_(float(step + rank))
        graph.replay()
        assert torch.equal(
            hvd.allreduce(captured, op=hvd.Sum),
            torch.full_like(captured, float(sum(2 * (step + each) + 1 for each in range(size)))),
        )
    hvd.shutdown()


def test_operations_beside_cuda_graphs(way):
    run(2, capture, way)


def begin_again():
    _, _, device = begin()
    tensor = torch.ones(1 << 20, device=device)
    free = []
    for _ in range(6):
        hvd.init()
        hvd.allreduce(tensor)
        hvd.allgather(tensor)
        hvd.shutdown()
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
        farandole.init()
        farandole.barrier()
        free.append(torch.cuda.mem_get_info()[0])
        farandole.barrier()
        farandole.shutdown()
    assert free[1] - free[-1] < 32 << 20, f"MiB free after each world: {[each >> 20 for each in free]}"


def test_worlds_one_after_the_other_leave_no_memory_behind(way):
    run(2, begin_again, way)


def join_early():
    rank, size, device = begin()
    for step in range(1 if rank == 1 else 3):
        present = size if step == 0 else size - 1
        assert hvd.allreduce(torch.ones(4, device=device), op=hvd.Sum).tolist() == [float(present)] * 4
        assert len(hvd.allgather(torch.ones(2, 3, device=device))) == 2 * present
        assert hvd.reducescatter(torch.ones(6, 2, device=device), op=hvd.Sum)[0, 0].item() == present
    assert hvd.join() != 1
    hvd.shutdown()


def test_a_rank_that_has_joined_takes_part(way):
    run(3, join_early, way)


def die(size_bytes):
    rank, _, device = begin()
    tensor = torch.ones(size_bytes // 4, device=device)
    for _ in range(3):
        hvd.allreduce_(tensor, op=hvd.Average)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(farandole.PeerLostError, match="rank 1"):
        for _ in range(1000):
            hvd.allreduce_(tensor, op=hvd.Average)
    took = time.monotonic() - began
    assert took < 5, f"told after {took:.1f} s"
    assert (tensor * 0 + 2).sum().item() == 2 * tensor.numel(), "the GPU still works"
    os.write(1, f"rank {rank} was told after {took:.2f} s\n".encode())


@pytest.mark.parametrize("size_bytes", [4, 64 << 20])
def test_a_rank_that_dies_is_named_and_the_gpu_goes_on(size_bytes, way):
    with pytest.raises(RanksFailed) as failed:
        run(3, die, way, size_bytes)
    text = str(failed.value)
    assert "raised" not in text and "did not answer" not in text, text
    print(text)


def wait_too_long():
    rank, _, device = begin()
    hvd.allreduce(torch.ones(10, device=device))
    if rank == 1:
        time.sleep(6)
    with pytest.raises(farandole.FarandoleError, match="rank 1") as caught:
        hvd.allreduce(torch.ones(10, device=device), name="gradient")
    assert (torch.ones(5, device=device) * 2).sum().item() == 10
    os.write(1, f"{type(caught.value).__name__}: {caught.value}\n".encode())


def test_a_rank_that_does_not_come_is_named(way):
    run(2, wait_too_long, way, FARANDOLE_TIMEOUT="3")


def lack_memory():
    rank, _, device = begin()
    small = torch.ones(1, device=device)
    hvd.allreduce(small)
    rows = torch.ones(1 << 28, device=device)  # 1 GiB
    hvd.barrier()
    free = torch.cuda.mem_get_info()[0]
    hog = torch.empty(free - (1500 << 20), dtype=torch.uint8, device=device) if rank == 0 else None
    hvd.barrier()
    with pytest.raises((farandole.FarandoleError, torch.OutOfMemoryError)) as caught:
        hvd.allgather(rows)
    os.write(1, f"{type(caught.value).__name__}: {caught.value}\n".encode())
    del hog


def test_a_gpu_without_memory_for_a_result_is_said():
    run(2, lack_memory, WAYS["nccl"])  # else results lie on the host first


def disagree():
    rank, _, device = begin()
    hvd.allreduce(torch.ones(3, device=device))
    with pytest.raises(farandole.MismatchError, match="device"):
        hvd.allreduce(torch.ones(3, device=device if rank == 0 else "cpu"), name="here.and.there")
    hvd.shutdown()


def test_ranks_that_disagree_about_the_device(way):
    run(2, disagree, way)


def negated():
    _, size, device = begin()
    values = torch.arange(6.0, device=device) + 1
    view = torch.complex(torch.zeros_like(values), -values).conj().imag
    assert view.is_neg() and torch.equal(view, values)
    assert torch.equal(hvd.allreduce(view, op=hvd.Sum), values * size)
    hvd.allreduce_(view, op=hvd.Sum)
    assert torch.equal(view, values * size)
    hvd.shutdown()


def test_a_negative_view_has_the_values_that_it_shows(way):
    run(2, negated, way)


def keep_training_beside_a_copy():
    """Gradients of a large model are reduced in backward, of which the weights of a copy know nothing."""
    _, _, device = begin()
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).to(device)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    alone = copy.deepcopy(model)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1e-3), model.named_parameters())
    for step in range(6):
        batch = torch.randn(64, 1024, device=device)
        for each in (model, alone):
            each.zero_grad()
            each(batch).square().mean().backward()
        optimizer.synchronize()
        for parameter, own in zip(model.parameters(), alone.parameters(), strict=True):
            assert torch.allclose(parameter.grad, hvd.allreduce(own.grad), atol=1e-7), step
        with optimizer.skip_synchronize():
            optimizer.step()
        alone.load_state_dict(model.state_dict())
    hvd.shutdown()


def test_gradients_are_those_of_all_ranks_in_every_step(way):
    run(2, keep_training_beside_a_copy, way)
