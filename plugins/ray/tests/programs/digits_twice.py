"""The example of PyTorch on Ray and by `farandole run`: the same parameters, bit for bit; argv is its folder."""

import subprocess
import sys
from pathlib import Path

import torch
from cluster import nodes
from farandole_ray import RayExecutor

examples, folder = Path(sys.argv[1]), Path.cwd()
sys.path.insert(0, str(examples))
import digits  # noqa: E402


def train(checkpoint):
    import sys

    sys.argv[1:] = ["--epochs", "3", "--checkpoint", checkpoint]
    digits.main()


command = [sys.executable, examples / "digits.py", "--epochs", "3", "--checkpoint", folder / "run.pt"]
subprocess.run([sys.executable, "-m", "farandole.launch", "run", "-np", "2", "--", *map(str, command)], check=True)
with nodes(2):
    executor = RayExecutor(num_workers=2)
    executor.start()
    executor.run(train, args=(str(folder / "ray.pt"),))
    executor.shutdown()
one, other = torch.load(folder / "run.pt"), torch.load(folder / "ray.pt")
assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
