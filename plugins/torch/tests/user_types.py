"""A user's program with what only the plugin for PyTorch has. Read by type checkers, see type_checks.py; never run."""

from collections.abc import Callable

import farandole_torch as hvd
import torch
from typing_extensions import assert_type


def train(model: torch.nn.Module) -> None:
    plain = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
    optimizer = hvd.DistributedOptimizer(
        plain, model.named_parameters(), compression=hvd.Compression.fp16, op=hvd.Average, groups=2
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer.zero_grad()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.set_backward_passes_per_step(2)
    with hvd.no_sync(optimizer):
        assert_type(hvd.average_metrics({"loss": torch.zeros(1)}), dict[str, float])
    assert_type(optimizer.submitted_bytes, int)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)


def train_whatever_ends(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, data: torch.utils.data.TensorDataset
) -> None:
    sampler = hvd.elastic.ElasticSampler(data, shuffle=True, seed=1)
    sampler.record_batch(0, batch_size=2)
    torch.utils.data.DataLoader(data, sampler=sampler)
    loader = hvd.elastic.DataLoader(data, 2, shuffle=True, num_workers=2, seed=1, pin_memory=True)
    loader.set_epoch(1)
    assert_type(len(loader), int)
    assert_type(loader.is_common, bool)
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, loader=loader, epoch=0)
    state.register_reset_callbacks([state.on_reset])

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState, steps: int) -> float:
        state.commit()
        return 0.5 * steps

    assert_type(train(state, steps=3), float)


def normalized(images: torch.Tensor) -> torch.nn.Module:
    layer = hvd.SyncBatchNorm(16, momentum=None, process_set=hvd.global_process_set)
    assert_type(layer.forward(images), torch.Tensor)
    return layer


def parameters(weights: torch.nn.Parameter, indices: torch.Tensor) -> None:
    assert_type(hvd.allreduce(weights), torch.Tensor)
    assert_type(hvd.broadcast(weights, 0), torch.Tensor)
    assert_type(hvd.allreduce(weights).sum(), torch.Tensor)
    assert_type(hvd.sparse_allreduce_async(indices, "indices", hvd.Sum), Callable[[], torch.Tensor])
    assert_type(hvd.mpi_ops.allreduce(weights), torch.Tensor)
    assert_type(hvd.persistent_allreduce(indices, "indices")(), torch.Tensor)
    assert_type(hvd.join(), int)
