"""A rank of the benchmark of elastic training: a model of 25 million parameters that is summed and committed each step.

    elastic_worker.py FOLDER STEPS

Writes to FOLDER/<rank> a line for each step that it has finished: number of ranks, step, time, seconds of its commit,
seconds in which it looked whether ranks leave.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import farandole_torch as hvd
import torch
from farandole_torch import elastic

_SIDE = 5_000  # the model is one square matrix


def main() -> None:
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    hvd.init()
    torch.set_num_threads(1)
    model = torch.nn.Linear(_SIDE, _SIDE, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = elastic.TorchState(model, optimizer, step=0)
    data = torch.ones(1, _SIDE)
    with open(folder / str(hvd.rank()), "w", buffering=1, encoding="ascii") as log:

        @elastic.run
        def train(state: elastic.TorchState) -> None:
            while state.step < steps:
                optimizer.zero_grad()
                model(data).sum().backward()
                optimizer.step()
                state.step += 1
                state.check_host_updates()  # the ranks are level after it
                began = time.monotonic()
                state.check_host_updates()
                looked = time.monotonic()
                state.commit()
                now = time.monotonic()
                log.write(f"{hvd.size()} {state.step} {now} {now - looked} {looked - began}\n")

        train(state)


if __name__ == "__main__":
    main()
