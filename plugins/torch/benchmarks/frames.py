"""Counts the calls of our Python functions that each gradient costs in a training step with DistributedOptimizer.

    python3 plugins/torch/benchmarks/frames.py

Two ranks of this machine train models of 20 and of 40 parameters. Counted is every call of a function of ours in rank
0's main thread from `backward()` to the end of `step()`, where autograd calls the hooks too, since the model is on the
CPU. The difference between the models, divided by 20, belongs to a gradient: what a step does once does not count.
The next value of a generator counts as a call. Needs a Python with PyTorch and farandole-torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

PARAMETERS = 20
WARM_UP_STEPS = 3  # in the first one the ranks compare what they reduce
LIMIT_S = 120


def calls_of_step(count: int, overlap: bool) -> Counter[str]:
    """Train a model of so many parameters, and count the calls of the last step by function."""
    import farandole_torch as hvd
    import torch

    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(count)]
    plain = torch.optim.SGD(parameters, lr=0.01)
    optimizer = hvd.DistributedOptimizer(plain, op=hvd.Sum, overlap=overlap)
    packages = tuple(str(Path(module.__file__).parent) + os.sep for module in (hvd, sys.modules["farandole"]))
    calls: Counter[str] = Counter()

    def on_event(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(packages):
            calls[f"{frame.f_code.co_name} ({Path(frame.f_code.co_filename).name})"] += 1

    for step in range(WARM_UP_STEPS + 1):
        loss = torch.stack([each.sum() for each in parameters]).sum()
        sys.setprofile(on_event if step == WARM_UP_STEPS else None)
        loss.backward()
        optimizer.step()
        sys.setprofile(None)
        optimizer.zero_grad()
    return calls


def count_frames() -> None:
    """Print the counts; both ranks of the world call it."""
    import farandole_torch as hvd

    hvd.init()
    for overlap, title in ((True, "while backward runs"), (False, "when backward is over")):
        few, many = calls_of_step(PARAMETERS, overlap), calls_of_step(2 * PARAMETERS, overlap)
        if hvd.rank() == 0:
            print(f"Gradients that travel {title}: {(many.total() - few.total()) / PARAMETERS:g} calls each")
            for function in many:
                if many[function] != few[function]:
                    print(f"  {(many[function] - few[function]) / PARAMETERS:g}  {function}")


def main() -> None:
    if "--rank" in sys.argv:
        count_frames()
        return
    launch = [sys.executable, "-m", "farandole.launch", "run", "-np", "2", "--no-prefix"]
    command = [*launch, sys.executable, str(Path(__file__).resolve()), "--rank"]
    sys.exit(subprocess.run(command, check=False, timeout=LIMIT_S).returncode)


if __name__ == "__main__":
    main()
