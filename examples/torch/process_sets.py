"""Try two learning rates at once: each half of the workers trains a model of its own; all get the better one.

    farandole run -np 4 python examples/torch/process_sets.py

Needs farandole-torch.
"""

from __future__ import annotations

import farandole_torch as hvd
import torch
from torch import nn
from torch.nn.functional import mse_loss

RATES = (0.001, 0.1)
STEPS = 60


def rows_of(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(32, 4, generator=generator)
    return inputs, inputs.prod(1, keepdim=True).tanh() + inputs.sum(1, keepdim=True)


def main() -> None:
    # 1. Find the other workers; the first half makes one set, the second half the other.
    hvd.init()
    ranks = list(range(hvd.size()))
    if len(ranks) < 2:
        raise SystemExit("two learning rates need two workers: farandole run -np 2 ...")
    halves = ranks[: len(ranks) // 2], ranks[len(ranks) // 2 :]
    sets = [hvd.add_process_set(half) for half in halves]  # on all workers, in one order
    which = 0 if hvd.rank() in halves[0] else 1
    mine, rate = sets[which], RATES[which]

    # 2. Give each worker data of its own.
    generator = torch.Generator().manual_seed(hvd.rank())

    # 3. Average the gradients within the set; start everywhere from rank 0's values.
    torch.manual_seed(42)
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), process_set=mine)

    # 4. Train.
    for _ in range(STEPS):
        inputs, targets = rows_of(generator)
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()

    # 5. The set's error on rows that are the same for all.
    inputs, targets = rows_of(torch.Generator().manual_seed(1000))
    with torch.no_grad():
        error = hvd.allreduce(mse_loss(model(inputs), targets), process_set=mine).item()

    # 6. All workers take over the better model, from the first worker of its set.
    errors = hvd.allgather_object(error)
    best = min(range(2), key=lambda half: errors[halves[half][0]])
    hvd.broadcast_parameters(model.state_dict(), root_rank=halves[best][0])
    with torch.no_grad():
        final = hvd.allgather_object(round(mse_loss(model(inputs), targets).item(), 4))
    if hvd.rank() == 0:
        tried = ", ".join(f"{rate}: {errors[half[0]]:.4f}" for rate, half in zip(RATES, halves, strict=True))
        print(f"errors by learning rate {tried}; all workers have {final}", flush=True)


if __name__ == "__main__":
    main()
