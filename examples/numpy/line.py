"""Fit a line to points that are spread over the ranks: gradient descent with numpy alone.

python examples/numpy/line.py
farandole run -np 2 python examples/numpy/line.py
"""

import farandole.numpy as hvd
import numpy as np

POINTS, STEPS, STEP_SIZE = 1000, 200, 0.5


def main() -> None:
    hvd.init()
    random = np.random.default_rng(42)
    x = random.uniform(-1, 1, POINTS)
    y = 3 * x - 2 + random.normal(0, 0.1, POINTS)
    x, y = x[hvd.rank() :: hvd.size()], y[hvd.rank() :: hvd.size()]  # my part of the data

    line = np.zeros(2)  # slope and height
    for _ in range(STEPS):
        off = line[0] * x + line[1] - y
        gradient = np.array([off @ x, off.sum()])
        line -= STEP_SIZE / POINTS * hvd.allreduce(gradient, op=hvd.Sum, name="gradient")
    if hvd.rank() == 0:
        print(f"slope {line[0]:.3f} height {line[1]:.3f}")


if __name__ == "__main__":
    main()
