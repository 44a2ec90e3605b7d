"""The backend "farandole" of torch.distributed on real GPUs."""

import pytest
import torch
import torch_device
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(150)

SLOW_CYCLES = 20_000_000  # about 10 ms of a GPU


def begin():
    """This rank, the number of ranks, and the device of its tensors."""
    import torch.distributed as dist

    dist.init_process_group("farandole", init_method="farandole://")
    return dist.get_rank(), dist.get_world_size(), torch.device(torch_device.DEVICE)


def exchange():
    import torch.distributed as dist

    rank, size, device = begin()
    tensor = torch.full((100_000,), -77.0, device=device)
    torch.cuda._sleep(SLOW_CYCLES)
    tensor.fill_(float(rank + 1))
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full_like(tensor, sum(range(1, size + 1))))
    parts = [torch.empty(3, device=device) for _ in range(size)]
    dist.all_gather(parts, torch.full((3,), float(rank), device=device))
    assert [part.tolist() for part in parts] == [[float(each)] * 3 for each in range(size)]
    part = torch.empty(2, device=device)
    dist.reduce_scatter_tensor(part, torch.arange(2.0 * size, device=device))
    assert part.tolist() == [size * 2.0 * rank, size * (2.0 * rank + 1)]
    dist.broadcast(part, 1)
    assert part.tolist() == [size * 2.0, size * 3.0]
    work = dist.all_reduce(torch.ones(5, device=device), async_op=True)
    (summed,) = work.get_future().wait()
    assert summed.tolist() == [float(size)] * 5
    dist.destroy_process_group()


def train(wrap):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    rank, size, device = begin()
    torch.manual_seed(7)
    data = torch.randn(size, 16, 32, device=device)
    trained = []
    for is_distributed in (True, False):
        torch.manual_seed(5)
        model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4)).to(device)
        parameters = [*model.parameters()]
        if is_distributed and wrap == "DistributedDataParallel":
            model = torch.nn.parallel.DistributedDataParallel(model)
        elif is_distributed:
            mesh = init_device_mesh(device.type, (size,))
            fully_shard(model, mesh=mesh)
            parameters = [*model.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        for _ in range(10):
            optimizer.zero_grad()
            model(data[rank] if is_distributed else data).square().mean().backward()
            optimizer.step()
        whole = [getattr(each, "full_tensor", lambda each=each: each)() for each in parameters]
        trained.append(torch.cat([each.detach().flatten() for each in whole]))
    assert torch.allclose(*trained, atol=1e-6), (trained[0] - trained[1]).abs().max()
    dist.destroy_process_group()


@pytest.mark.parametrize("backend", ["native", "nccl,native"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_collectives(ranks, backend):
    spawn(ranks, exchange, timeout=100, env={"FARANDOLE_BACKEND": backend})


@pytest.mark.parametrize("backend", ["native", "nccl,native"])
@pytest.mark.parametrize("wrap", ["DistributedDataParallel", "fully_shard"])
def test_training_is_that_of_one_process(wrap, backend):
    spawn(2, train, wrap, timeout=100, env={"FARANDOLE_BACKEND": backend})
