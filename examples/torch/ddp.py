"""A tutorial's script for DistributedDataParallel, on Farandole: the backend's name and two lines are ours.

    farandole run -np 2 python examples/torch/ddp.py
    torchrun --nproc-per-node 2 examples/torch/ddp.py

Needs farandole-torch.
"""

from __future__ import annotations

import farandole_torch.distributed  # noqa: F401  # registers the backend
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    # 1. Find the other workers.
    dist.init_process_group("farandole", init_method="farandole://")
    torch.manual_seed(42)

    # 2. Give each worker its share of the data.
    inputs = torch.randn(1000, 10)
    labels = (inputs.sum(1, keepdim=True) > 0).float()
    data = TensorDataset(inputs, labels)
    sampler = DistributedSampler(data)
    batches = DataLoader(data, batch_size=32, sampler=sampler)

    # 3. Average the gradients of all workers; start everywhere from rank 0's values.
    model = nn.Sequential(nn.Linear(10, 50), nn.ReLU(), nn.Linear(50, 1), nn.Sigmoid())
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1 * dist.get_world_size())
    loss_of = nn.BCELoss()

    # 4. Train.
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for rows, answers in batches:
            optimizer.zero_grad()
            loss = loss_of(parallel(rows), answers)
            loss.backward()
            optimizer.step()
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}", flush=True)

    # 5. Test every worker's model on all rows.
    right = ((model(inputs) > 0.5) == labels.bool()).double().mean()
    dist.all_reduce(right, dist.ReduceOp.MIN)
    if dist.get_rank() == 0:
        print(f"test accuracy {right.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
