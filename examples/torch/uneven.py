"""Workers with different amounts of data: who is done joins, and the others train on; two sets of workers compare.

    farandole run -np 4 python examples/torch/uneven.py

Needs farandole-torch.
"""

from __future__ import annotations

import farandole_torch as hvd
import torch
from torch import nn
from torch.nn.functional import mse_loss

TRUE_WEIGHTS = torch.tensor([[2.0, -3.0, 0.5]])


def main() -> None:
    # 1. Find the other workers, of which the even and the odd ones are to be told apart.
    hvd.init()
    ranks = list(range(hvd.size()))
    sets = [hvd.add_process_set(each) for each in (ranks[::2], ranks[1::2])] if len(ranks) > 2 else []

    # 2. Worker r has 20 + 10 r batches.
    generator = torch.Generator().manual_seed(hvd.rank())
    batches = [torch.randn(16, 3, generator=generator) for _ in range(20 + 10 * hvd.rank())]

    # 3. Average the gradients of all workers; start everywhere from rank 0's values.
    torch.manual_seed(42)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    # 4. Train; from a worker that has joined, gradients count as zeros.
    for rows in batches:
        optimizer.zero_grad()
        mse_loss(model(rows), rows @ TRUE_WEIGHTS.T + 1.0).backward()
        optimizer.step()
    last = hvd.join()
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)

    # 5. Each set of workers compares the model with its own data.
    rows = torch.cat(batches)
    error = mse_loss(model(rows), rows @ TRUE_WEIGHTS.T + 1.0).detach()
    for process_set in sets:
        if process_set.included():
            error = hvd.allreduce(error, process_set=process_set)
    errors = hvd.allgather_object(round(error.item(), 3))
    if hvd.rank() == 0:
        weights = " ".join(f"{weight:.2f}" for weight in model.weight[0].tolist())
        print(f"rank {last} was last; errors {errors}; weights {weights}", flush=True)


if __name__ == "__main__":
    main()
