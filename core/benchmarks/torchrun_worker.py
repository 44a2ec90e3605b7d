"""The model of elastic_worker.py with DistributedDataParallel over gloo and a checkpoint each step, for torchrun.

    torchrun_worker.py FOLDER STEPS

Writes the same lines to FOLDER/<rank>, and its number of the process to FOLDER/<rank>.pid.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

_SIDE = 5_000  # as in elastic_worker.py


def main() -> None:
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    (folder / f"{rank}.pid").write_text(str(os.getpid()), encoding="ascii")
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Linear(_SIDE, _SIDE, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    checkpoint, step, life = folder / "checkpoint.pt", 0, int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        step = saved["step"]
    data = torch.ones(1, _SIDE)
    with open(folder / str(rank), "a", buffering=1, encoding="ascii") as log:
        while step < steps:
            optimizer.zero_grad()
            model(data).sum().backward()
            optimizer.step()
            step += 1
            began = time.monotonic()
            if rank == 0:
                torch.save({"model": model.state_dict(), "step": step}, folder / "next.pt")
                os.replace(folder / "next.pt", checkpoint)
            now = time.monotonic()
            log.write(f"{size - life} {step} {now} {now - began} 0\n")  # "ranks" tells the lives apart
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
