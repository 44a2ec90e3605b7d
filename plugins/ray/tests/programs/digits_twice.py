"""An example on Ray and by `farandole run`; argv: its script, and where the checkpoints go."""

import subprocess
import sys

from cluster import nodes
from farandole_ray import RayExecutor

script, ours, theirs = sys.argv[1:]
EPOCHS = "2"


def train(script, checkpoint):
    import runpy
    import sys

    sys.argv = [script, "--epochs", EPOCHS, "--checkpoint", checkpoint]
    runpy.run_path(script, run_name="__main__")


words = [sys.executable, script, "--epochs", EPOCHS, "--checkpoint", theirs]
subprocess.run([sys.executable, "-m", "farandole.launch", "run", "-np", "2", "--", *words], check=True)
with nodes(2):
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=60), num_workers=2)
    executor.start()
    executor.run(train, args=(script, ours))
    executor.shutdown()
