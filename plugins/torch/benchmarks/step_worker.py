"""A rank in the benchmark that takes the training steps of run.py over Farandole. Its requests:

optimizer  steps with DistributedOptimizer
ddp        steps with DistributedDataParallel over the back end farandole

A worker of core/benchmarks, which PYTHONPATH names: gate.py starts it.
"""

from __future__ import annotations

import time

import farandole_torch as hvd
import farandole_torch.distributed  # registers the back end
import torch
import torch.distributed as dist
import worker
from run import Turn, arguments, begin, distributed, training
from torch.nn.parallel import DistributedDataParallel


def prepare() -> dict[str, Turn]:
    dist.init_process_group("farandole", init_method="farandole://")
    args = arguments().parse_args([])
    torch.manual_seed(hvd.rank())
    text = torch.randint(256, (args.rows, args.context + 1))
    return {
        "optimizer": training(args, text, lambda model: model, distributed),
        "ddp": training(args, text, DistributedDataParallel),
    }


def measure(turn: Turn, steps: int, turns: int) -> list[float]:
    """Seconds of a step, for each turn."""
    seconds = []
    for _ in range(turns):
        hvd.barrier()
        began = time.perf_counter()
        turn(steps)
        seconds.append((time.perf_counter() - began) / steps)
    return seconds


def main() -> None:
    begin()
    ways = prepare()
    worker.serve(hvd.rank(), hvd.size(), lambda what, _, steps, turns: measure(ways[what], steps, turns))


if __name__ == "__main__":
    main()
