"""The cost of an allreduce as a graph node, beside the same number of `tf.numpy_function`s that do next to nothing.

    python3 noxfile.py -s bench -- plugins/tensorflow/benchmarks/run.py --append-to docs/benchmarks/tensorflow.md

or, beside another version or on one rank, with the `farandole run` of that environment, such as
`.nox/tensorflow-2.13/bin/farandole`. Ends with 1 where the target is missed.

A figure is the time of a graph on the slowest rank, divided by its nodes. Both graphs take turns in the same processes.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import farandole_tensorflow as hvd
import numpy as np
import tensorflow as tf

RATIO_LIMIT = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure Farandole in graphs of TensorFlow.")
    parser.add_argument("--nodes", type=int, default=100, help="in each graph")
    parser.add_argument("--elements", type=int, default=256, help="float32, of each tensor")
    parser.add_argument("--turns", type=int, default=200, help="of each graph")
    parser.add_argument("--append-to", type=Path, help="also add the report to this file, below a heading if it is new")
    args = parser.parse_args()
    hvd.init()
    graphs = {
        "allreduce": graph_of(hvd.allreduce, args),
        "tf.numpy_function": graph_of(lambda x: tf.numpy_function(lambda array: array * 2, [x], tf.float32), args),
        "x * 2": graph_of(lambda x: x * 2, args),
    }
    times = {name: on_slowest(taken) for name, taken in turns(graphs, args).items()}
    sys.exit(1 if report(times, args) else 0)


def graph_of(operation: Callable[[Any], Any], args: argparse.Namespace) -> Callable[[Any], Any]:
    """A function that applies the operation to as many tensors at once."""
    return tf.function(lambda x: [operation(x + i) for i in range(args.nodes)])  # type: ignore[no-any-return]


def turns(graphs: dict[str, Callable[[Any], Any]], args: argparse.Namespace) -> dict[str, list[float]]:
    """Microseconds a node, of each turn."""
    x = tf.zeros(args.elements)
    taken: dict[str, list[float]] = {name: [] for name in graphs}
    for turn in range(args.turns + 5):
        for name, graph in graphs.items():
            hvd.barrier()
            began = time.perf_counter()
            graph(x)
            if turn >= 5:
                taken[name].append((time.perf_counter() - began) / args.nodes * 1e6)
    return taken


def on_slowest(values: list[float]) -> list[float]:
    """Each value on the rank where it is largest."""
    found: list[float] = hvd.allreduce(np.array(values), op=hvd.Max).numpy().tolist()
    return found


def report(times: dict[str, list[float]], args: argparse.Namespace) -> bool:
    """Print and write the table; whether the target is missed."""
    ratio = min(times["allreduce"]) / min(times["tf.numpy_function"])
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    lines = [] if args.append_to and args.append_to.exists() else heading(args)
    lines += [
        "",
        f"## TensorFlow {tf.version.VERSION}, {'1 rank' if hvd.size() == 1 else f'{hvd.size()} ranks'}",
        "",
        "| node | minimum | median |",
        "|---|---:|---:|",
        *(f"| `{name}` | {min(taken):.1f} | {medians[name]:.1f} |" for name, taken in times.items()),
        f"| ratio of the first two | {ratio:.2f} | {medians['allreduce'] / medians['tf.numpy_function']:.2f} |",
    ]
    if hvd.rank() == 0:
        print("\n".join(lines), flush=True)
        if args.append_to:
            with args.append_to.open("a") as file:
                file.write("\n".join(lines) + "\n")
    return ratio > RATIO_LIMIT


def heading(args: argparse.Namespace) -> list[str]:
    return [
        "# TensorFlow",
        "",
        "Written by `python3 noxfile.py -s bench -- plugins/tensorflow/benchmarks/run.py`;",
        "[run.py](../../plugins/tensorflow/benchmarks/run.py) says what is measured.",
        "",
        f"One machine: {os.cpu_count()} cores of {processor()}.",
        f"Graphs of {args.nodes} nodes on {args.elements} float32 each, {args.turns} turns; microseconds a node.",
        f"The target: an allreduce takes at most {RATIO_LIMIT} times what a `tf.numpy_function` takes, which exchanges",
        "nothing, by the minimums.",
    ]


def processor() -> str:
    with open("/proc/cpuinfo") as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
