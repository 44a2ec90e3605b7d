"""The same tutorial as ddp.py with an optimizer that reduces the gradients: what a script for Horovod looks like.

    farandole run -np 2 python examples/torch/tutorial.py

Needs farandole-torch.
"""

from __future__ import annotations

import farandole_torch as hvd  # the only line that differs from Horovod's
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    # 1. Find the other workers.
    hvd.init()
    torch.manual_seed(42)

    # 2. Give each worker its share of the data.
    inputs = torch.randn(1000, 10)
    labels = (inputs.sum(1, keepdim=True) > 0).float()
    data = TensorDataset(inputs, labels)
    sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
    batches = DataLoader(data, batch_size=32, sampler=sampler)

    # 3. Average the gradients of all workers.
    model = nn.Sequential(nn.Linear(10, 50), nn.ReLU(), nn.Linear(50, 1), nn.Sigmoid())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    loss_of = nn.BCELoss()

    # 4. Start everywhere from rank 0's values.
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    # 5. Train.
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for rows, answers in batches:
            optimizer.zero_grad()
            loss = loss_of(model(rows), answers)
            loss.backward()
            optimizer.step()
        average = hvd.allreduce(loss.detach(), name="loss")
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {average.item():.3f}", flush=True)

    # 6. Test every worker's model on all rows.
    right = hvd.allreduce(((model(inputs) > 0.5) == labels.bool()).double().mean(), op=hvd.Min, name="right")
    if hvd.rank() == 0:
        print(f"test accuracy {right.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
