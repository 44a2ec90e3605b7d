"""A rank of the benchmark of elastic training: a model of 25 million parameters that is summed and committed each step.

    elastic_worker.py FOLDER STEPS

Writes to FOLDER/<number> a line for each step that it has finished: number of ranks, step, time, seconds of its commit,
seconds in which it looked whether ranks leave; and to FOLDER/<number>.ready when it was started, and when it could take
steps. Its number is its rank at the start, or the next one where it joins later. It dies where FOLDER/<number>.dies is.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import farandole_torch as hvd
import psutil
import torch
from farandole_torch import elastic

_SIDE = 5_000  # the model is one square matrix


def main() -> None:
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    hvd.init()
    number = os.environ.get("FARANDOLE_JOINS") or str(hvd.rank())
    torch.set_num_threads(1)
    model = torch.nn.Linear(_SIDE, _SIDE, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = elastic.TorchState(model, optimizer, step=0)
    data = torch.ones(1, _SIDE)
    with open(folder / number, "w", buffering=1, encoding="ascii") as log:

        @elastic.run
        def train(state: elastic.TorchState) -> None:
            while state.step < steps:
                optimizer.zero_grad()
                model(data).sum().backward()
                optimizer.step()
                state.step += 1
                try:
                    state.check_host_updates()  # the ranks are level after it
                    began = time.monotonic()
                    state.check_host_updates()
                    looked = time.monotonic()
                    state.commit()
                except hvd.HostsUpdatedInterrupt:  # a newcomer waits; the step is finished
                    log.write(f"{hvd.size()} {state.step} {time.monotonic()} 0 0\n")
                    raise
                now = time.monotonic()
                log.write(f"{hvd.size()} {state.step} {now} {now - looked} {looked - began}\n")
                if (folder / f"{number}.dies").exists():
                    os.kill(os.getpid(), signal.SIGKILL)

        started = time.monotonic() - (time.time() - psutil.Process().create_time())
        (folder / f"{number}.ready").write_text(f"{started} {time.monotonic()}", encoding="ascii")
        train(state)


if __name__ == "__main__":
    main()
