"""The cost of a small allreduce in MXNet's engine, and the time that exchange adds to training steps.

    python3 noxfile.py -s bench -- plugins/mxnet/benchmarks/run.py --output docs/benchmarks/mxnet.md

or, with Farandole and MXNet installed: `farandole run -np 2 python plugins/mxnet/benchmarks/run.py`. Ends with 1 where
a target is missed.

A figure is a time on the slowest rank. Compute alone and with exchange take turns in the same processes, and all ranks
compute at once in both, so that both meet the same machine: what differs is the exchange, and that ranks wait for each
other.
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

import farandole_mxnet as hvd
import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon.model_zoo.vision import BasicBlockV1, ResNetV1

LATENCY_LIMIT_US = 60
OVERHEAD_LIMIT = 0.15


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure Farandole inside MXNet's engine.")
    parser.add_argument("--operations", type=int, default=500, help="small allreduces of each size in a turn")
    parser.add_argument("--turns", type=int, default=12, help="of each thing that is measured")
    parser.add_argument("--steps", type=int, default=6, help="of training in a turn")
    parser.add_argument("--batch-size", type=int, default=32, help="images of each rank in a step")
    parser.add_argument("--output", type=Path, help="also write the report to this file")
    args = parser.parse_args()
    hvd.init()
    latencies = {elements: latencies_us(elements, args) for elements in (1, 64, 1024)}
    alone, together = step_times_ms(args)
    missed = report(latencies, alone, together, args)
    sys.exit(1 if missed else 0)


def on_slowest(values: list[float]) -> list[float]:
    """Each value on the rank where it is largest."""
    return hvd.allreduce(mx.nd.array(values, dtype="float64"), op=hvd.Max).asnumpy().tolist()


def latencies_us(elements: int, args: argparse.Namespace) -> list[float]:
    """Times from the call to its result: their minimum, then their median in each turn."""
    array = mx.nd.zeros((elements,))
    found = []
    for _ in range(1 + args.turns):
        taken = []
        for _ in range(args.operations):
            began = time.perf_counter()
            hvd.allreduce_(array, op=hvd.Sum, name="small")
            array.wait_to_read()
            taken.append((time.perf_counter() - began) * 1e6)
        found.append((min(taken), statistics.median(taken)))
    minimums, medians = zip(*found[1:], strict=True)  # the first turn warms up
    return on_slowest([min(minimums), *medians])


def trainer_of(optimizer: mx.optimizer.Optimizer, batch_size: int) -> Callable[[], None]:
    """A function that trains one step of a ResNet for images of 32 x 32 pixels: 20 layers, 272,000 parameters."""
    net = ResNetV1(BasicBlockV1, [3, 3, 3], [16, 16, 32, 64], classes=10, thumbnail=True)
    net.initialize(mx.init.MSRAPrelu())
    net.hybridize(static_alloc=True, static_shape=True)
    images, labels = mx.nd.random.normal(shape=(batch_size, 3, 32, 32)), mx.nd.zeros((batch_size,))
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    hvd.broadcast_parameters(net.collect_params(), prefix=type(optimizer).__name__)
    trainer = gluon.Trainer(net.collect_params(), optimizer, kvstore=None)

    def step() -> None:
        with autograd.record():
            loss = loss_function(net(images), labels)
        loss.backward()
        trainer.step(batch_size)

    return step


def step_times_ms(args: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Times of a step in each turn: computed alone, and with exchange."""
    ways = [trainer_of(mx.optimizer.SGD(learning_rate=0.01, momentum=0.9), args.batch_size)]
    ways += [trainer_of(hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.01, momentum=0.9)), args.batch_size)]
    times: list[list[float]] = [[], []]
    for turn in range(2 + args.turns):
        for way, step in enumerate(ways):
            hvd.barrier()
            began = time.perf_counter()
            for _ in range(args.steps):
                step()
            mx.nd.waitall()
            if turn >= 2:
                times[way].append((time.perf_counter() - began) / args.steps * 1e3)
    return on_slowest(times[0]), on_slowest(times[1])


def report(
    latencies: dict[int, list[float]], alone: list[float], together: list[float], args: argparse.Namespace
) -> list[str]:
    """Print the figures once, and return what missed its target."""
    overhead = min(together) / min(alone) - 1
    median_overhead = statistics.median(together) / statistics.median(alone) - 1
    small = min(latencies[1][1:])
    missed = []
    if small > LATENCY_LIMIT_US:
        missed.append(f"an allreduce of one element takes {small:.0f} us, {LATENCY_LIMIT_US} are allowed")
    if overhead > OVERHEAD_LIMIT:
        missed.append(f"exchange makes a step {overhead:.1%} longer, {OVERHEAD_LIMIT:.0%} are allowed")
    lines = [
        "# MXNet",
        "",
        "Written by `python3 noxfile.py -s bench -- plugins/mxnet/benchmarks/run.py`;",
        "[run.py](../../plugins/mxnet/benchmarks/run.py) says what is measured.",
        "",
        f"MXNet {mx.__version__}, {hvd.size()} ranks on one machine: {os.cpu_count()} cores of {processor()}.",
        "",
        "## A small allreduce, from the call to its result",
        "",
        f"float32, in place, {args.turns} turns of {args.operations} of each size; microseconds. The target is a",
        f"median of at most {LATENCY_LIMIT_US} for one element, in the turn that neighbours disturbed least.",
        "",
        "| elements | minimum | median, best turn | median, all turns |",
        "|---:|---:|---:|---:|",
        *(
            f"| {count} | {least:.1f} | {min(medians):.1f} | {statistics.median(medians):.1f} |"
            for count, (least, *medians) in latencies.items()
        ),
        "",
        "## A step of a small ResNet",
        "",
        f"20 layers, 32 x 32 pixels, {args.batch_size} images on each rank, SGD with momentum; milliseconds a step, in",
        f"{args.turns} turns of {args.steps} steps each. The target: minimums at most {OVERHEAD_LIMIT:.0%} apart.",
        "",
        "| | minimum | median |",
        "|---|---:|---:|",
        f"| all ranks compute, nothing is exchanged | {min(alone):.1f} | {statistics.median(alone):.1f} |",
        f"| with `DistributedOptimizer` | {min(together):.1f} | {statistics.median(together):.1f} |",
        f"| longer by | {overhead:.1%} | {median_overhead:.1%} |",
    ]
    if hvd.rank() == 0:
        print("\n".join([*lines, "", *(f"MISSED: {each}" for each in missed)]), flush=True)
        if args.output:
            args.output.write_text("\n".join(lines) + "\n")
    return missed


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if "name" in line), platform.machine())


if __name__ == "__main__":
    main()
