"""What PyTorch builds on torch.distributed, each as a function whose result must not depend on the backend.

Run on 4 ranks, with the default group made. Every rank returns tensors.
"""

import copy
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

SIZE = 4


def network():
    torch.manual_seed(5)
    layers = [torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)]
    return torch.nn.Sequential(*layers).double()


def inputs_of(rank, step):
    return torch.sin(torch.arange(32.0).reshape(4, 8) * (rank + 1) + step).double()


def train(model, optimizer, rank, steps=3):
    for step in range(steps):
        optimizer.zero_grad()
        model(inputs_of(rank, step)).square().mean().backward()
        optimizer.step()


def full(parameters):
    return [each.full_tensor() if isinstance(each, DTensor) else each.detach() for each in parameters]


# ---- parameters in parts


def fsdp2():
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model, mesh = network(), init_device_mesh("cpu", (SIZE,))
    policy = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float64)
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    train(model, optimizer, dist.get_rank())
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    return [*full(model.parameters()), norm.full_tensor()]


def hybrid_shards():
    """Replicas of shards: a mesh of two dimensions."""
    from torch.distributed.fsdp import fully_shard

    model, mesh = network(), init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), dist.get_rank())
    return full(model.parameters())


def tensor_parallel():
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = parallelize_module(
        network(), init_device_mesh("cpu", (SIZE,)), {"0": ColwiseParallel(), "2": RowwiseParallel()}
    )
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, foreach=False), 0)
    return full(model.parameters())


def tensor_parallel_in_shards():
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    model = parallelize_module(network(), mesh["model"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, foreach=False), mesh["data"].get_local_rank())
    return full(model.parameters())


def redistributed():
    """DTensors from each placement to each other."""
    mesh = init_device_mesh("cpu", (SIZE,))
    whole = torch.arange(32.0).reshape(8, 4)
    found = []
    for source in (Replicate(), Shard(0), Shard(1), Partial()):
        local = distribute_tensor(whole, mesh, [Replicate() if source == Partial() else source]).to_local()
        for target in (Replicate(), Shard(0), Shard(1)):
            found.append(DTensor.from_local(local, mesh, [source]).redistribute(mesh, [target]).to_local())
    uneven = distribute_tensor(torch.arange(10.0), mesh, [Shard(0)])
    return [*found, uneven.full_tensor(), (uneven + 1).sum().full_tensor()]


# ---- steps in parts


def pipelines():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    found = []
    for schedule in (ScheduleGPipe, Schedule1F1B):
        rank = dist.get_rank()
        torch.manual_seed(rank)
        part = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
        stage = PipelineStage(part, rank, SIZE, torch.device("cpu"))
        run = schedule(stage, n_microbatches=SIZE, loss_fn=torch.nn.functional.mse_loss)
        whole = torch.sin(torch.arange(64.0).reshape(8, 8))
        losses = []
        if rank == 0:
            run.step(whole)
        elif rank == SIZE - 1:
            run.step(target=whole.cos(), losses=losses)
        else:
            run.step()
        found += [each.grad for each in part.parameters()]
    return found


# ---- gradients and optimizers


def communication_hooks():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    found = []
    power = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=1
    )
    for state, hook in (
        (None, default_hooks.allreduce_hook),
        (None, default_hooks.fp16_compress_hook),
        (None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)),
        (power, powerSGD_hook.powerSGD_hook),
    ):
        torch.manual_seed(7)
        model = DistributedDataParallel(network().float())
        model.register_comm_hook(state, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            model(inputs_of(dist.get_rank(), step).float()).square().mean().backward()
            optimizer.step()
        found += full(model.parameters())
    return found


def local_steps():
    """Groups of two ranks take steps of their own, and all meet now and then."""
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager

    mine, _ = dist.new_subgroups(2)
    model = DistributedDataParallel(network())
    model.register_comm_hook(PostLocalSGDState(None, mine, start_localSGD_iter=1), post_localSGD_hook)
    averager = PeriodicModelAverager(period=2, warmup_steps=1)
    hierarchical = HierarchicalModelAverager({2: 2, 4: 4}, warmup_steps=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        train(model, optimizer, dist.get_rank(), 1)
        (averager if step < 3 else hierarchical).average_parameters(model.parameters())
    return full(model.parameters())


def zero_redundancy():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.1)
    train(model, optimizer, dist.get_rank())
    optimizer.consolidate_state_dict(to=0)
    return full(model.parameters())


def uneven_inputs():
    """The ranks have different numbers of batches."""
    from torch.distributed.algorithms.join import Join
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.1)
    with Join([model, optimizer]):
        train(model, optimizer, dist.get_rank(), steps=2 + dist.get_rank())
    other = DistributedDataParallel(copy.deepcopy(model.module))
    with other.join():
        train(other, torch.optim.SGD(other.parameters(), lr=0.1), dist.get_rank(), steps=5 - dist.get_rank())
    return [*full(model.parameters()), *full(other.parameters())]


# ---- checkpoints


def checkpoints():
    """A state in shards is saved, and read in other shards."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    def sharded(*sizes):
        model = network()
        fully_shard(model, mesh=init_device_mesh("cpu", sizes, mesh_dim_names=("replicate", "shard")[-len(sizes) :]))
        return model, torch.optim.Adam(model.parameters(), lr=0.1)

    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    model, optimizer = sharded(SIZE)
    train(model, optimizer, dist.get_rank())
    dcp.save(dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True)), checkpoint_id=folder[0])
    other, its_optimizer = sharded(2, 2)
    state = dict(zip(("model", "optimizer"), get_state_dict(other, its_optimizer), strict=True))
    dcp.load(state, checkpoint_id=folder[0])
    set_state_dict(other, its_optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    train(other, its_optimizer, dist.get_rank(), 1)
    return full(other.parameters())


CASES = [
    fsdp2,
    hybrid_shards,
    tensor_parallel,
    tensor_parallel_in_shards,
    redistributed,
    pipelines,
    communication_hooks,
    local_steps,
    zero_redundancy,
    uneven_inputs,
    checkpoints,
]
