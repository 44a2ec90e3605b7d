"""Less usual calls of torch.distributed over the backend "farandole"."""

import inspect
import threading
import time
from datetime import timedelta

import farandole_torch as hvd
import pytest
import torch
import torch.distributed as dist
from farandole.testing import spawn, world
from farandole_torch import _private
from test_distributed import joined, moves, reductions
from versions import needs

pytestmark = [pytest.mark.timeout(180), needs(2, 7, "what the backend needs")]


def values_of(rank, dtype):
    torch.manual_seed(rank)
    return torch.randint(0, 100, (2, 3)).to(dtype)


def bitwise():
    """In all forms of a reduction, of integers and bool."""
    rank, size = joined()
    for dtype in (torch.uint8, torch.int64, torch.bool):
        everybody = [values_of(each, dtype) for each in range(size)]
        for op, function in (
            (dist.ReduceOp.BAND, torch.bitwise_and),
            (dist.ReduceOp.BOR, torch.bitwise_or),
            (dist.ReduceOp.BXOR, torch.bitwise_xor),
        ):
            expected = everybody[0]
            for each in everybody[1:]:
                expected = function(expected, each)
            tensor = everybody[rank].clone()
            dist.all_reduce(tensor, op)
            assert torch.equal(tensor, expected)
            strided = torch.zeros(3, 2, dtype=dtype).t()
            strided.copy_(everybody[rank])
            dist.all_reduce(strided, op, async_op=True).wait()
            assert torch.equal(strided, expected)
            tensor = everybody[rank].clone()
            dist.reduce(tensor, 0, op)
            assert torch.equal(tensor, expected if rank == 0 else everybody[rank])
            part = torch.empty(2, 3, dtype=dtype)
            dist.reduce_scatter_tensor(part, torch.cat([everybody[rank]] * size), op)
            assert torch.equal(part, expected)
            dist.reduce_scatter(part, [everybody[rank]] * size, op)
            assert torch.equal(part, expected)
    with pytest.raises(ValueError, match=r"of integers and bool, not of torch\.float32"):
        dist.all_reduce(torch.ones(1), dist.ReduceOp.BXOR)


def scaled_sums():
    """PREMUL_SUM, with numbers and tensors; AVG in a reduce_scatter (pytorch#162344)."""
    rank, size = joined()
    total = sum(range(1, size + 1))
    for factor in (0.5, torch.tensor([0.5])):
        op = dist._make_nccl_premul_sum(factor)
        for async_op in (False, True):
            tensor = torch.full((3,), rank + 1.0)
            work = dist.all_reduce(tensor, op, async_op=async_op)
            work and work.wait()
            assert tensor.tolist() == [total / 2] * 3
        part = torch.empty(2)
        dist.reduce_scatter_tensor(part, torch.full((2 * size,), rank + 1.0), op)
        assert part.tolist() == [total / 2] * 2
    part = torch.empty(2)
    dist.reduce_scatter_tensor(part, torch.full((2 * size,), rank + 1.0), dist.ReduceOp.AVG)
    assert part.tolist() == [total / size] * 2
    dist.reduce_scatter(part, [torch.full((2,), rank + 1.0)] * size, dist.ReduceOp.AVG)
    assert part.tolist() == [total / size] * 2


def complex_numbers():
    rank, size = joined()
    mine = torch.tensor([1 + 2j, 3 - 1j]) * (rank + 1)
    tensor = mine.clone()
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.tensor([1 + 2j, 3 - 1j]) * sum(range(1, size + 1)))
    lists = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(lists, mine.conj().resolve_conj())
    assert torch.equal(lists[1], (torch.tensor([1 + 2j, 3 - 1j]) * 2).conj())
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.PRODUCT  # dist.all_reduce refuses it
    dist.group.WORLD.allreduce([tensor.copy_(torch.tensor([1j, 2]))], options).wait()
    assert torch.equal(tensor, torch.tensor([1j**size, 2.0**size]))


def small_floats():
    """Of 8 bits, which are moved as they are."""
    rank, size = joined()
    mine = torch.full((4,), rank + 1.0).to(torch.float8_e4m3fn)
    whole = torch.empty(4 * size, dtype=mine.dtype)
    dist.all_gather_into_tensor(whole, mine)
    assert whole.float().tolist() == [float(each + 1) for each in range(size) for _ in range(4)]
    dist.broadcast(mine, 1)
    assert mine.float().tolist() == [2.0] * 4
    output = torch.empty(size, dtype=mine.dtype)
    dist.all_to_all_single(output, torch.full((size,), float(rank)).to(mine.dtype))
    assert output.float().tolist() == [float(each) for each in range(size)]


def coalesced():
    rank, size = joined()
    total = float(sum(range(size)))
    several = [torch.full((2,), float(rank)), torch.full((3,), float(rank))]
    with dist.distributed_c10d._coalescing_manager():
        for each in several:
            dist.all_reduce(each)
    assert [each[0] for each in several] == [total, total]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
        gathered = [torch.empty(2 * size) for _ in range(2)]
        for each in gathered:
            dist.all_gather_into_tensor(each, torch.full((2,), float(rank)))
    manager.wait()
    assert all(each.tolist() == [float(k) for k in range(size) for _ in range(2)] for each in gathered)
    with dist.distributed_c10d._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        mine = [torch.tensor([rank]) for _ in range(size)]
        for root in range(size):
            dist.broadcast(mine[root], root, async_op=True)
    manager.wait()
    assert [each.item() for each in mine] == list(range(size))


def functional():
    """Collectives that return new tensors, with and without gradients."""
    import torch.distributed._functional_collectives as functional
    import torch.distributed.nn.functional as differentiable

    rank, size = joined()
    total, group = float(sum(range(size))), dist.group.WORLD
    mine = torch.full((size,), float(rank))
    assert functional.all_reduce(mine, "sum", group).tolist() == [total] * size
    assert functional.all_reduce(mine, "avg", group).tolist() == [total / size] * size
    assert functional.broadcast(mine, size - 1, group).tolist() == [size - 1.0] * size
    assert functional.all_gather_tensor(mine, 0, group)[::size].tolist() == [float(each) for each in range(size)]
    assert functional.reduce_scatter_tensor(mine, "sum", 0, group).tolist() == [total]
    exchanged = functional.all_to_all_single(mine, [1] * size, [1] * size, group)
    assert exchanged.tolist() == [float(each) for each in range(size)]
    assert [each[0].item() for each in functional.all_reduce_coalesced([mine, mine], "sum", group)] == [total] * 2
    assert functional.all_gather_into_tensor_coalesced([mine], group)[0][::size].sum().item() == total
    assert functional.reduce_scatter_tensor_coalesced([mine], "sum", [0], group)[0].item() == total
    mine.requires_grad_()
    (differentiable.all_reduce(mine) * (rank + 1)).sum().backward()
    assert mine.grad.tolist() == [float(sum(range(1, size + 1)))] * size
    assert torch.stack(differentiable.all_gather(mine)).sum().item() == total * size


def barriers():
    joined()
    dist.barrier()
    dist.barrier(async_op=True).wait()
    dist.barrier(device_ids=[0])
    dist.group.WORLD._set_sequence_number_for_group()


def ranks_in_any_order():
    rank, size = joined()
    if "sort_ranks" not in inspect.signature(dist.new_group).parameters:  # until 2.10
        return
    group = dist.new_group(list(reversed(range(size))), sort_ranks=False)
    assert dist.get_rank(group) == size - 1 - rank
    reductions(group), moves(group)
    uneven = torch.empty(size - rank)
    parts = [torch.full((1 + place,), float(rank)) for place in range(size)]
    dist.reduce_scatter(uneven, parts, group=group)
    assert uneven.tolist() == [float(sum(range(size)))] * (size - rank)


def late_ranks():
    """A wait that is limited raises, and names who is missing. The operation goes on."""
    rank, size = joined()
    group = dist.new_group(timeout=timedelta(seconds=0.5))
    if rank == 0:
        tensor = torch.ones(2)
        begun = time.monotonic()
        with pytest.raises(hvd.DeadlineError, match=r"500 ms on rank 0 for rank 1 \("):
            dist.all_reduce(tensor, group=group)
        assert 0.4 < time.monotonic() - begun < 5
    hvd.barrier()
    if rank:
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [size] * 2
    hvd.barrier()
    dist.all_reduce(torch.ones(2), group=group)
    if rank == 0:
        work = dist.all_reduce(torch.ones(2), async_op=True)
        with pytest.raises(hvd.DeadlineError, match=r"200 ms on rank 0 for rank 1 \("):
            work.wait(timedelta(seconds=0.2))
        hvd.allreduce(torch.ones(1), name="go on")
        assert work.wait()
    else:
        hvd.allreduce(torch.ones(1), name="go on")
        dist.all_reduce(torch.ones(2))


def aborted():
    """A thread that waits for an operation of the group is woken; other groups go on."""
    rank, _ = joined()
    group, seen = dist.new_group(), []
    if rank == 0:

        def wait():
            with pytest.raises(hvd.DeadlineError) as raised:
                dist.all_reduce(torch.ones(2), group=group)
            seen.append(raised.value)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.3)
        group.abort()
        thread.join(30)
        assert seen
    dist.barrier()


class Squares(torch.utils.data.Dataset):
    """What forked workers compute, which no operation can take part in."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        with pytest.raises(hvd.NotInitializedError):
            dist.all_reduce(torch.ones(1))
        with pytest.raises(hvd.NotInitializedError):
            dist.isend(torch.ones(1), 0)
        return index**2


def forked():
    """The group goes on while workers of a data loader come and go."""
    rank, size = joined()
    for _ in range(2):
        for number in torch.utils.data.DataLoader(Squares(), num_workers=2, multiprocessing_context="fork"):
            total = number.clone()
            dist.all_reduce(total)
            assert total.item() == size * number.item()
            if rank == 0:
                dist.send(number, 1)
            if rank == 1:
                dist.recv(total)
                assert total.item() == number.item()


def monitored_barriers():
    from farandole_torch.distributed import monitored_barrier

    rank, _ = joined()
    for _ in range(3):
        monitored_barrier(timeout=timedelta(seconds=30))
    for is_all, missing in ((False, "Rank 1 failed"), (True, r"Ranks 1, 2 failed")):
        if rank == 0:
            with pytest.raises(hvd.DeadlineError, match=missing):
                monitored_barrier(timeout=0.2, wait_all_ranks=is_all)
        hvd.barrier()
        if rank:
            with pytest.raises(hvd.DeadlineError, match=f"Rank {rank} successfully reached monitoredBarrier"):
                monitored_barrier(timeout=0.2)
        hvd.barrier()
    monitored_barrier()
    assert dist.Backend.FARANDOLE == "farandole"


def profiled():
    """With shapes, and as asynchronous events that are over when a wait is."""
    _, size = joined()
    tensor = torch.ones(2, 3)
    with torch.autograd.profiler.profile(record_shapes=True) as profiler:
        dist.all_reduce(tensor)
        dist.broadcast(tensor, 0)
        dist.all_gather([torch.empty(2, 3) for _ in range(size)], tensor, async_op=True).wait()
        dist.barrier()
    events = {each.name: each for each in profiler.function_events if each.name.startswith("farandole:")}
    assert events.keys() == {f"farandole:{each}" for each in ("all_reduce", "broadcast", "all_gather", "barrier")}
    assert all(each.is_async and each.count == 1 for each in events.values())
    assert events["farandole:all_reduce"].input_shapes == [[2, 3]]


@pytest.mark.parametrize(
    "case", [bitwise, scaled_sums, complex_numbers, small_floats, coalesced, functional, barriers, monitored_barriers]
)
def test_calls(case):
    world(3).run(case)


@pytest.mark.parametrize("case", [forked, ranks_in_any_order, late_ranks, profiled])
def test_between_two(case):
    world(2).run(case)


def test_an_abort_wakes_whoever_waits():
    spawn(2, aborted, timeout=60)  # its operation stays in flight, where a later join would wait for it


@needs(2, 13, "what is in its AllreduceOptions is known")
def test_no_more_of_an_object_of_pytorch_is_read_than_is_allocated(monkeypatch):
    find = _private.image_of_blocking_sum.__wrapped__
    assert find() is not None
    monkeypatch.setattr(_private, "allocated_bytes", lambda address: 56)
    assert find() is None
