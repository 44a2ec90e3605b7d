"""The cost of a step of model.fit with Farandole, beside a step in which each rank trains by itself.

    farandole run -np 2 python plugins/tensorflow/benchmarks/fit.py
    farandole run -np 2 python plugins/tensorflow/benchmarks/fit.py --strategy

The second also measures TensorFlow's MultiWorkerMirroredStrategy, which needs Keras 2: TensorFlow 2.15 or older, or
TF_USE_LEGACY_KERAS=1 with the package tf_keras. `--settings` choose how `fit` runs, see docs/guide/keras.md. All train
the same model on as many images per step and rank, and take turns in the same processes, of which rank r stays on core
r. The extra cost is the median over the turns, each compared with the compute-only turn before it. Ends with 1 where
that is not under the limit, or not less than with the strategy. `noxfile.py -s bench -- tensorflow` runs both.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import farandole
import numpy as np

OVERHEAD_LIMIT_PERCENT = 20
SETTINGS: dict[str, dict[str, Any]] = {
    "float32": {},
    "mixed_bfloat16": {},
    "mixed_float16": {},
    "steps_per_execution": {"steps_per_execution": 10},
    "jit_compile": {"jit_compile": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure steps of model.fit.")
    parser.add_argument("--pixels", type=int, default=28, help="of an image's side")
    parser.add_argument("--batch-size", type=int, default=64, help="images per step and rank")
    parser.add_argument("--steps", type=int, default=20, help="in a turn")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=["float32"])
    parser.add_argument("--groups", type=int, default=0, help="of gradients")
    parser.add_argument("--strategy", action="store_true", help="also MultiWorkerMirroredStrategy")
    parser.add_argument("--append-to", type=Path, help="also add the report to this file")
    args = parser.parse_args()
    farandole.init()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[farandole.local_rank() % len(cores)]})
    strategy = make_strategy() if args.strategy else None
    missed = [measure(setting, strategy, args) for setting in args.settings]
    sys.exit(1 if any(missed) else 0)


def make_strategy() -> Any:
    """TensorFlow wants it to be there before anything is computed."""
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses()}, "task": task()})
    import tensorflow as tf

    return tf.distribute.MultiWorkerMirroredStrategy()


def measure(setting: str, strategy: Any, args: argparse.Namespace) -> bool:
    """Let the contestants take turns; whether a target is missed."""
    contestants = prepare(setting, strategy, args)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(args.turns + 2):  # the first make the graphs
        for name, fit in contestants.items():
            farandole.barrier()
            began = time.perf_counter()
            fit()
            farandole.barrier()
            if turn >= 2:
                times[name].append((time.perf_counter() - began) / args.steps * 1e3)
    return report(times, setting, args)


def prepare(setting: str, strategy: Any, args: argparse.Namespace) -> dict[str, Any]:
    """A function for each contestant, which takes a turn."""
    import farandole_tensorflow
    import farandole_tensorflow.keras as hvd
    import tensorflow as tf

    keras = tf.keras
    if setting == "jit_compile":
        farandole_tensorflow.use_xla()
    keras.mixed_precision.set_global_policy(setting if setting.startswith("mixed") else "float32")
    rows = np.random.RandomState(farandole.rank()).rand(args.batch_size, args.pixels, args.pixels, 1).astype("float32")
    labels = np.arange(args.batch_size) % 10

    def made(optimizer: Any) -> Any:
        layers = keras.layers
        model = keras.Sequential(
            [
                layers.Input(rows.shape[1:]),
                layers.Conv2D(32, 3, activation="relu"),
                layers.Conv2D(64, 3, activation="relu"),
                layers.MaxPooling2D(2),
                layers.Flatten(),
                layers.Dense(128, activation="relu"),
                layers.Dense(10),
                layers.Activation("linear", dtype="float32"),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=optimizer, loss=loss, **{"jit_compile": False, **SETTINGS[setting]})
        return model

    def turn(model: Any, batch_size: int) -> Any:
        data = tf.data.Dataset.from_tensor_slices((rows, labels)).repeat().batch(batch_size).take(args.steps).cache()
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        data = data.with_options(options)
        return lambda: model.fit(data, shuffle=False, verbose=0)

    found = {
        "compute only": turn(made(keras.optimizers.SGD(0.01)), args.batch_size),
        "farandole": turn(
            made(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), groups=args.groups)), args.batch_size
        ),
    }
    if strategy is not None:
        with strategy.scope():
            model = made(keras.optimizers.SGD(0.01))
        found["strategy"] = turn(model, args.batch_size * farandole.size())  # of which each worker takes its part
    return found


def addresses() -> list[str]:
    """Of the strategy's servers, one for each rank."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return farandole.allgather_object(f"127.0.0.1:{free.getsockname()[1]}")


def task() -> dict[str, Any]:
    return {"type": "worker", "index": farandole.rank()}


def report(times: dict[str, list[float]], setting: str, args: argparse.Namespace) -> bool:
    """Print and write the table; whether a target is missed."""
    import tensorflow as tf

    more = {name: overhead_percent(taken, times["compute only"]) for name, taken in times.items()}
    lines = [
        "",
        f"## model.fit, TensorFlow {tf.version.VERSION}, {setting}, {farandole.size()} ranks",
        "",
        f"Milliseconds a step of {args.batch_size} images of {args.pixels} x {args.pixels} per rank; at most "
        f"{OVERHEAD_LIMIT_PERCENT} % more are the target.",
        "",
        "| step | minimum | median | more than compute only |",
        "|---|---:|---:|---:|",
        *(
            f"| {name} | {min(taken):.2f} | {statistics.median(taken):.2f} | {more[name]:+.1f} % |"
            for name, taken in times.items()
        ),
    ]
    if farandole.rank() == 0:
        print("\n".join(lines), flush=True)
        if args.append_to:
            with args.append_to.open("a") as file:
                file.write("\n".join(lines) + "\n")
    return more["farandole"] > OVERHEAD_LIMIT_PERCENT or more["farandole"] >= more.get("strategy", float("inf"))


def overhead_percent(taken: list[float], bare: list[float]) -> float:
    """By the median of the ratios of turns that follow each other."""
    return (statistics.median(mine / other for mine, other in zip(taken, bare, strict=True)) - 1) * 100


if __name__ == "__main__":
    main()
