"""torch.distributed over the backend "farandole": its collectives, DistributedDataParallel and fully_shard."""

import copy
import random
import threading
import time
from datetime import timedelta

import farandole_torch as hvd
import pytest
import torch
import torch.distributed as dist
from farandole.testing import spawn, world
from versions import needs

pytestmark = [pytest.mark.timeout(180), needs(2, 7, "what the backend needs")]


def joined():
    """The group of all ranks, made once in each process."""
    import farandole_torch.distributed  # noqa: F401

    if not dist.is_initialized():
        dist.init_process_group("farandole", init_method="farandole://")
    assert dist.get_backend() == "farandole"
    assert (dist.get_rank(), dist.get_world_size()) == (hvd.rank(), hvd.size())
    return dist.get_rank(), dist.get_world_size()


def reductions(group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    total = sum(range(1, size + 1))
    for op, expected in (
        (dist.ReduceOp.SUM, total),
        (dist.ReduceOp.AVG, total / size),
        (dist.ReduceOp.MIN, 1),
        (dist.ReduceOp.MAX, size),
    ):
        tensor = torch.full((2, 3), rank + 1.0)
        dist.all_reduce(tensor, op, group=group)
        assert torch.equal(tensor, torch.full((2, 3), float(expected)))
        strided = torch.full((3, 4), rank + 1.0)[:, ::2]
        work = dist.all_reduce(strided, op, group=group, async_op=True)
        assert work.wait() and work.is_completed() and work.is_success()
        assert torch.equal(strided, torch.full((3, 2), float(expected)))
    tensor = torch.full((2,), rank + 1.0)
    dist.reduce(tensor, group_dst=size - 1, group=group)
    assert tensor.tolist() == [total if rank == size - 1 else rank + 1.0] * 2
    mine = torch.empty(2)
    dist.reduce_scatter_tensor(mine, torch.arange(2.0 * size) + rank, group=group)
    assert torch.equal(mine, torch.arange(2.0 * size)[2 * rank : 2 * rank + 2] * size + sum(range(size)))
    dist.reduce_scatter(mine, [torch.full((2,), float(k)) for k in range(size)], group=group)
    assert mine.tolist() == [rank * size] * 2


def moves(group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    tensor = torch.full((3,), float(rank))
    dist.broadcast(tensor, group_src=size - 1, group=group)
    assert tensor.tolist() == [size - 1] * 3
    lists = [torch.empty(2, 2) for _ in range(size)]
    dist.all_gather(lists, torch.full((2, 2), float(rank)), group=group)
    assert [int(each.mean()) for each in lists] == list(range(size))
    whole = torch.empty(2 * size, dtype=torch.int64)
    dist.all_gather_into_tensor(whole, torch.tensor([rank, -rank]), group=group)
    assert whole.tolist() == [sign * place for place in range(size) for sign in (1, -1)]
    gathered = [torch.empty(2) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.full((2,), float(rank)), gathered, group_dst=0, group=group)
    assert rank or [int(each[0]) for each in gathered] == list(range(size))
    own = torch.empty(2)
    parts = [torch.full((2,), float(k)) for k in range(size)] if rank == size - 1 else None
    dist.scatter(own, parts, group_src=size - 1, group=group)
    assert own.tolist() == [rank] * 2
    outputs = [torch.empty(rank + k + 1) for k in range(size)]
    dist.all_to_all(outputs, [torch.full((rank + k + 1,), float(rank)) for k in range(size)], group=group)
    assert [each.unique().tolist() for each in outputs] == [[float(k)] for k in range(size)]
    output = torch.empty(size, 2)
    dist.all_to_all_single(output, torch.full((size, 2), float(rank)), group=group)
    assert output[:, 0].tolist() == list(range(size))
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank}, group=group)
    assert objects == [{"rank": k} for k in range(size)]
    dist.barrier(group=group)


def objects(group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    told = [{"from": rank}, rank]
    dist.broadcast_object_list(told, group_src=size - 1, group=group)
    assert told == [{"from": size - 1}, size - 1]
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(("from", rank), gathered, group_dst=0, group=group)
    assert rank or gathered == [("from", k) for k in range(size)]
    own = [None]
    dist.scatter_object_list(own, [f"to {k}" for k in range(size)] if rank == 0 else None, group_src=0, group=group)
    assert own == [f"to {rank}"]
    several = [torch.full((2,), rank + 1.0), torch.full((3, 2), float(rank))]
    dist.all_reduce_coalesced(several, group=group)
    assert [each.mean() for each in several] == [sum(range(1, size + 1)), sum(range(size))]
    rows = [place + 1 for place in range(size)]  # to rank k, k + 1 rows
    output = torch.empty((rank + 1) * size, 2)
    dist.all_to_all_single(output, torch.full((sum(rows), 2), float(rank)), [rank + 1] * size, rows, group=group)
    assert output[:, 0].tolist() == [k for k in range(size) for _ in range(rank + 1)]
    dist.barrier(group=group, async_op=True).wait()
    with pytest.raises(ValueError, match="only implemented for GLOO"):
        dist.monitored_barrier(group=group)


def from_rank_to_rank(group=None):
    """In a ring, by tags out of order, in a batch, and objects."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    after, before = (rank + 1) % size, (rank - 1) % size
    for strided in (False, True):
        sent, got = torch.full((3, 4), float(rank)), torch.zeros(3, 4)
        sent, got = (each[:, ::2] if strided else each for each in (sent, got))
        ring = [dist.isend(sent, group=group, group_dst=after), dist.irecv(got, group=group, group_src=before)]
        for work in ring:
            work.wait()
        assert torch.equal(got, torch.full_like(got, float(before)))
    for _ in range(3):
        if rank == 0:
            dist.send(torch.tensor([1]), group=group, group_dst=1, tag=8)  # what rank 1 asks for at last
            dist.send(torch.tensor([2]), group=group, group_dst=1, tag=9)
        if rank == 1:
            eight, nine = torch.empty(1, dtype=torch.int64), torch.empty(1, dtype=torch.int64)
            later = dist.irecv(eight, group=group, group_src=0, tag=8)
            dist.recv(nine, group=group, group_src=0, tag=9)
            later.wait()
            assert (eight.item(), nine.item()) == (1, 2)
    got = [torch.empty(2) for _ in range(2)]
    batch = [
        *(dist.P2POp(dist.irecv, each, group=group, group_peer=before) for each in got),
        *(dist.P2POp(dist.isend, torch.full((2,), rank + k / 2), group=group, group_peer=after) for k in range(2)),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert [each[0].item() for each in got] == [before, before + 0.5]
    if rank == 0:
        dist.send_object_list([{"a": 1}, "b"], group=group, group_dst=1)
    if rank == 1:
        told = [None, None]
        dist.recv_object_list(told, group=group, group_src=0)
        assert told == [{"a": 1}, "b"]
    if rank == 0:
        dist.send(torch.tensor([5.0]), group=group, group_dst=1)
        dist.send(torch.ones(2), group=group, group_dst=1)
    if rank == 1:
        got = torch.empty(1)
        assert dist.recv(got, group=group) == 0 and got.item() == 5
        with pytest.raises(hvd.MismatchError):
            dist.recv(torch.ones(3), group=group, group_src=0)
    self_sent = dist.isend(torch.tensor([rank]), group=group, group_dst=rank, tag=4)
    got = torch.zeros(1, dtype=torch.int64)
    dist.irecv(got, group=group, group_src=rank, tag=4).wait()
    assert self_sent.wait() and got.item() == rank
    dist.barrier(group=group)


def passing_between_two():
    joined()
    from_rank_to_rank()


def passing_in_a_larger_world():
    """In groups of some ranks, too; messages of different groups do not meet."""
    joined()
    from_rank_to_rank()
    group = dist.new_group([0, 2])
    if dist.get_rank() != 1:
        from_rank_to_rank(group), objects(group)
    if dist.get_rank() == 0:
        dist.send(torch.tensor([1.0]), 2)
        dist.send(torch.tensor([2.0]), 2, group)
    if dist.get_rank() == 2:
        got = torch.empty(1)
        assert dist.recv(got, group=group) == 0 and got.item() == 2
        assert dist.recv(got) == 0 and got.item() == 1
    hvd.barrier()


def late_senders():
    """A receive that is limited raises; the group goes on."""
    joined()
    if dist.get_rank() == 0:
        work = dist.irecv(torch.empty(1), 1)
        with pytest.raises(hvd.DeadlineError):
            work.wait(timedelta(seconds=0.2))
    hvd.barrier()
    if dist.get_rank() == 1:
        dist.send(torch.tensor([7.0]), 0)
    if dist.get_rank() == 0:
        got = torch.empty(1)
        dist.recv(got, 1)
        assert got.item() == 7


def everything():
    joined()
    reductions(), moves(), objects()


def subgroups():
    """Made by their members, with or without the others."""
    joined()
    if hvd.rank() < 2:
        pair = dist.new_group([0, 1], use_local_synchronization=True)
        reductions(pair), moves(pair), objects(pair)
    group = dist.new_group([0, 2])
    if hvd.rank() != 1:
        reductions(group), moves(group)
    hvd.barrier()


def network():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()


def inputs_of(rank, step):
    return torch.sin(torch.arange(12.0).reshape(3, 4) * (rank + 1) + step).double()


def steps(model, optimizer, inputs_of_step, count=3):
    for step in range(count):
        optimizer.zero_grad()
        given = inputs_of_step(step)
        (sum(model(each).square().mean() for each in given) / len(given)).backward()
        optimizer.step()


def data_parallel(**options):
    """DistributedDataParallel takes the steps of one process with everybody's rows."""
    rank, size = joined()
    torch.manual_seed(rank)  # DDP starts from rank 0's parameters
    whole = network()
    model = copy.deepcopy(whole)
    if rank:
        torch.nn.init.zeros_(model[0].weight)
    parallel = torch.nn.parallel.DistributedDataParallel(model, **options)
    steps(parallel, torch.optim.SGD(parallel.parameters(), lr=0.1), lambda step: [inputs_of(rank, step)])
    steps(whole, torch.optim.SGD(whole.parameters(), lr=0.1), lambda step: [inputs_of(k, step) for k in range(size)])
    for got, want in zip(model.parameters(), whole.parameters(), strict=True):
        assert torch.allclose(got, want, rtol=1e-9, atol=1e-12)


def parallel_in_every_way():
    data_parallel()
    data_parallel(bucket_cap_mb=0.0001)
    data_parallel(find_unused_parameters=True)
    data_parallel(gradient_as_bucket_view=True)


def fully_sharded():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    rank, size = joined()
    whole, model = network(), network()
    mesh = init_device_mesh("cpu", (size,))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    steps(model, torch.optim.Adam(model.parameters(), lr=0.1), lambda step: [inputs_of(rank, step)])
    steps(whole, torch.optim.Adam(whole.parameters(), lr=0.1), lambda step: [inputs_of(k, step) for k in range(size)])
    for got, want in zip(model.parameters(), whole.parameters(), strict=True):
        assert torch.allclose(got.full_tensor(), want, rtol=1e-6, atol=1e-9)


def errors_arrive():
    """At whoever waits, and in the future; the group goes on."""
    rank, _ = joined()
    with pytest.raises(hvd.MismatchError, match=r"rank 0.*rank 1"):
        dist.all_reduce(torch.ones(2 + rank))
    work = dist.all_reduce(torch.ones(2 + rank), async_op=True)
    with pytest.raises(RuntimeError, match=r"MismatchError.*rank 0.*rank 1"):
        work.get_future().wait()
    assert not work.is_success()
    work = dist.all_reduce(torch.ones(2), async_op=True)
    assert work.get_future().wait()[0].tolist() == [hvd.size()] * 2
    parallel = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    loss = parallel(torch.ones(1, 2)).sum()
    with pytest.raises(RuntimeError if rank == 0 else hvd.MismatchError, match="the ranks disagree"):
        loss.backward() if rank == 0 else dist.all_reduce(torch.ones(99))


def polled():
    """A caller that polls until an operation is complete has its results without wait()."""
    rank, size = joined()
    outputs = [torch.zeros(2) for _ in range(size)]
    work = dist.all_gather(outputs, torch.full((2,), rank + 1.0), async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    assert [each[0] for each in outputs] == list(range(1, size + 1))


def blocking():
    """Of a caller that waits next, an operation is over within the call, and there is nothing to wait for."""
    rank, size = joined()
    options = dist.AllreduceOptions()
    options.asyncOp = False
    tensor = torch.full((2,), rank + 1.0)
    assert dist.group.WORLD.allreduce([tensor], options) is None
    assert tensor.tolist() == [sum(range(1, size + 1))] * 2


def within_compiled_functions():
    """Dynamo compiles what is around a collective, and nothing of ours."""
    from torch._dynamo.utils import counters

    rank, size = joined()

    def beside(values):
        doubled = values * 2
        dist.all_reduce(doubled, async_op=True).wait()  # Dynamo leaves it to Python
        return doubled + 1

    def within(values):
        doubled = values * 2
        dist.all_reduce(doubled)
        return doubled + 1

    total = 2.0 * sum(range(1, size + 1))
    for function, graphs in ((beside, 2), (within, 1)):
        counters.clear()
        faster = torch.compile(function, backend="aot_eager")
        for _ in range(3):
            assert faster(torch.full((4,), rank + 1.0)).tolist() == [total + 1] * 4
        assert counters["stats"]["unique_graphs"] == graphs, counters


def groups_in_threads():
    """Groups of the same ranks, each used by a thread of its own: the ranks' threads are not equally quick."""
    rank, size = joined()
    groups = [dist.group.WORLD, *(dist.new_group(list(range(size))) for _ in range(2))]
    wrong = []

    def use(place):
        draw = random.Random(f"{rank} {place}")
        for step in range(100):
            if draw.random() < 0.1:
                time.sleep(0.0005)
            tensor = torch.full((4,), 1000.0 * place + step)
            work = dist.all_reduce(tensor, group=groups[place], async_op=draw.random() < 0.5)
            if work is not None:
                work.wait()
            if tensor.tolist() != [size * (1000.0 * place + step)] * 4:
                wrong.append((place, step, tensor.tolist()))

    threads = [threading.Thread(target=use, args=(place,)) for place in range(len(groups))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    for group in groups[1:]:
        dist.destroy_process_group(group)


def more_groups_than_sets():
    """They work, and say what they share."""
    joined()
    with pytest.warns(UserWarning, match="from one thread: .*63"):
        groups = [dist.new_group(list(range(hvd.size()))) for _ in range(64)]
    tensor = torch.ones(2)
    for group in groups:
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)


def groups_that_come_and_go():
    """More than there are process sets, of all ranks and of some. Their members do not destroy them at one time."""
    rank, size = joined()
    for number in range(80):
        everybody, pair = dist.new_group(), dist.new_group([0, number % (size - 1) + 1])
        dist.all_reduce(torch.ones(2), group=everybody)
        if rank == 0 and number % 20 == 0:
            time.sleep(0.1)
        dist.destroy_process_group(everybody)
        if rank in (0, number % (size - 1) + 1):
            dist.destroy_process_group(pair)


def sparse_gradients():
    """Of an embedding under DistributedDataParallel: as one process with everybody's rows."""
    rank, size = joined()
    torch.manual_seed(3)
    whole = torch.nn.Sequential(torch.nn.Embedding(10, 3, sparse=True), torch.nn.Linear(3, 1)).double()
    parallel = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(whole))
    rows = [torch.tensor([each, 9, each, 2 + each]) for each in range(size)]
    steps(parallel, torch.optim.SGD(parallel.parameters(), lr=0.1), lambda step: [rows[rank]])
    steps(whole, torch.optim.SGD(whole.parameters(), lr=0.1), lambda step: rows)
    for got, want in zip(parallel.module.parameters(), whole.parameters(), strict=True):
        assert torch.allclose(got, want, rtol=1e-9, atol=1e-12)
    tensor = torch.eye(3)[: rank + 1].sum(0).to_sparse()
    dist.all_reduce(tensor)
    assert tensor.to_dense().tolist() == [float(size - k) if k < size else 0.0 for k in range(3)]


def threads():
    return [each for each in threading.enumerate() if each.name == "farandole futures"]


def groups_that_end():
    """A group that is destroyed leaves no thread; what it was given before is completed."""
    joined()
    before = len(threads())
    group = dist.new_group(list(range(hvd.size())))
    future = dist.all_reduce(torch.ones(2), group=group, async_op=True).get_future()
    assert len(threads()) == before + 1
    dist.destroy_process_group(group)
    assert future.wait()[0].tolist() == [hvd.size()] * 2
    deadline = time.monotonic() + 30
    while len(threads()) > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(threads()) == before


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_collectives(ranks):
    world(ranks).run(everything)


def test_subgroups():
    spawn(3, subgroups, timeout=60)  # PyTorch names groups by how many a rank has


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_distributed_data_parallel(ranks):
    world(ranks).run(parallel_in_every_way)


def test_fully_shard():
    world(2).run(fully_sharded)


def test_errors():
    world(2).run(errors_arrive)


def test_results_are_there_when_an_operation_is_completed():
    world(2).run(polled)


def test_blocking_operations_are_over_at_once():
    world(2).run(blocking)


def test_compiled_functions_with_collectives():
    world(2).run(within_compiled_functions)


def test_groups_have_orders_of_their_own():
    world(2).run(groups_in_threads)
    world(3).run(groups_in_threads)


def test_more_groups_than_process_sets():
    spawn(2, more_groups_than_sets, timeout=60)


def test_groups_that_come_and_go():
    spawn(3, groups_that_come_and_go, timeout=120)


def test_sparse_gradients():
    world(3).run(sparse_gradients)


def test_groups_leave_no_threads():
    world(2).run(groups_that_end)


def test_send_and_recv():
    world(2).run(passing_between_two)


def test_send_and_recv_among_three():
    world(3).run(passing_in_a_larger_world)


def test_receives_have_limits():
    world(2).run(late_senders)
