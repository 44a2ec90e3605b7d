"""The cost of exchanging gradients in a training step, with Farandole and with DistributedDataParallel over gloo.

    python3 noxfile.py -s bench -- plugins/torch/benchmarks/run.py --output docs/benchmarks/torch.md

or, with Farandole and PyTorch installed: `farandole run -np 2 python plugins/torch/benchmarks/run.py`. Ends with 1
where a target is missed.

Copies of one transformer, one for each way to train it, take turns of some steps in the same processes, of which rank
r stays on core r and computes with one thread. A figure is the time of a turn on the slowest rank, divided by its
steps. The cost of a way is its shortest turn less the shortest compute-only one, for DistributedDataParallel of one
that exchanges nothing; the ways begin rounds by turns, and the report has medians, too. A barrier after backward shows
what it costs that ranks go on together, whatever they exchange. In each round one blocking sum of as many bytes as the
gradients have is timed as well. The session keeps malloc from returning memory to the system: it does so after some
steps and not after others, and 30,000 page faults take as long as five sums.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import farandole_torch as hvd
import farandole_torch.distributed  # registers the backend, and finds the other ranks for gloo
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from tqdm import trange

COMPUTE_ONLY, BARRIER = "compute only", "compute only, and a barrier after backward"
NOTHING, GLOO = "DDP, nothing exchanged", "DDP, gloo"
FARANDOLE, OPTIMIZER = "DDP, farandole", "DistributedOptimizer"
SHARDED_GLOO, SHARDED = "fully_shard, gloo", "fully_shard, farandole"
OVERLAPPING = "DistributedOptimizer, overlap=True"
SUM = "one blocking sum of all gradients"
SUMS_LIMIT = 1.5  # what the exchange may cost, in such sums
SHARE_LIMIT = 0.35  # of what gloo costs
EVENT_SECONDS = 80e-9  # of a timeline, see docs/guide/timeline.md
EVENTS_LIMIT_PERCENT = 1.0

Turn = Callable[[int], None]  # takes as many steps


class LanguageModel(nn.Module):  # type: ignore[misc]  # torch is not read
    """A transformer that predicts the next byte."""

    def __init__(self, width: int, layers: int, context: int) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(256, width), nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.logits = nn.Linear(width, 256)

    def forward(self, text: Any) -> Any:
        length = text.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=text.device)
        embedded = self.embedding(text) + self.places(torch.arange(length, device=text.device))
        return self.logits(self.layers(embedded, mask, is_causal=True))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure training steps of a transformer.")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--context", type=int, default=64, help="bytes of text in a row")
    parser.add_argument("--rows", type=int, default=2, help="per step and rank")
    parser.add_argument("--steps", type=int, default=2, help="in a turn")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--device", default="cpu", help="cuda: all on GPUs, which ranks may share")
    parser.add_argument("--output", type=Path, help="also write the report here, and the figures to a .json file")
    return parser


def main() -> None:
    args = arguments().parse_args()
    begin()
    ways, parameters = prepare(args)
    times = rounds(ways, args)
    events = {name: timeline_events(ways[name], args.steps) for name in (FARANDOLE, OPTIMIZER)}
    missed = report(times, events, parameters, args)
    dist.destroy_process_group()
    sys.exit(1 if missed else 0)


def begin() -> None:
    """Become a rank that computes with one thread, and stays on a core of its own."""
    hvd.init()
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[hvd.local_rank() % len(cores)]})


def prepare(args: argparse.Namespace) -> tuple[dict[str, Turn], int]:
    """The functions that take turns, one for each way to train; and how many parameters the model has."""
    dist.init_process_group("gloo", init_method="farandole://")
    ours = dist.new_group(backend="farandole")
    torch.manual_seed(hvd.rank())
    text = torch.randint(256, (args.rows, args.context + 1)).to(args.device)
    turn = partial(training, args, text)

    def sharded(group: Any, model: Any) -> Any:
        mesh = DeviceMesh.from_group(group, text.device.type)
        for layer in model.layers.layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    ways = {
        COMPUTE_ONLY: turn(lambda model: model),
        BARRIER: turn(lambda model: model, exchange=hvd.barrier),
        NOTHING: turn(lambda model: unexchanged(DistributedDataParallel(model))),
        GLOO: turn(DistributedDataParallel),
        FARANDOLE: turn(lambda model: DistributedDataParallel(model, process_group=ours)),
        SHARDED_GLOO: turn(partial(sharded, dist.new_group(backend="gloo"))),
        SHARDED: turn(partial(sharded, dist.new_group(backend="farandole"))),
        OPTIMIZER: turn(lambda model: model, distributed),
        OVERLAPPING: turn(lambda model: model, partial(distributed, overlap=True)),
    }
    model = LanguageModel(args.width, args.layers, args.context)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    gradients = torch.zeros(parameters, device=args.device)

    def add_up(steps: int) -> None:
        for _ in range(steps):
            hvd.allreduce_(gradients, name="gradients")

    return {**ways, SUM: add_up}, parameters


def training(
    args: argparse.Namespace,
    text: Any,
    wrap: Callable[[Any], Any],
    finish: Callable[[Any, Any], Any] = lambda _, optimizer: optimizer,
    exchange: Callable[[], Any] = lambda: None,
) -> Turn:
    """A model of its own, and the function that takes training steps with it."""
    torch.manual_seed(42)
    plain = LanguageModel(args.width, args.layers, args.context).to(args.device)
    model = wrap(plain)
    optimizer = finish(plain, torch.optim.AdamW(plain.parameters(), lr=1e-4))

    def take(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()
            exchange()
            optimizer.step()
        if text.is_cuda:
            torch.cuda.synchronize()

    return take


def distributed(model: Any, optimizer: Any, overlap: bool | None = None) -> Any:
    return hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), overlap=overlap)


def unexchanged(model: Any) -> Any:
    """Each rank keeps its own gradients, which go through all that DistributedDataParallel does to them."""

    def keep(_, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations, and must find its own classes
        future: Any = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model.register_comm_hook(None, keep)
    return model


def rounds(ways: dict[str, Turn], args: argparse.Namespace) -> dict[str, list[float]]:
    """Milliseconds a step on the slowest rank, of each round."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for number in trange(args.rounds + 1, desc="rounds", disable=hvd.rank() != 0):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            hvd.barrier()
            began = time.perf_counter()
            ways[name](args.steps)
            if number:  # the first makes buckets, names and the optimizers' state
                taken[name].append((time.perf_counter() - began) / args.steps * 1e3)
    slowest = hvd.allreduce(torch.tensor(list(taken.values())), op=hvd.Max)
    return dict(zip(taken, slowest.tolist(), strict=True))


def timeline_events(turn: Turn, steps: int) -> float:
    """How many events this rank's timeline has for a step."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with recorded(path):
            turn(steps)
        trace = json.loads(path.with_name(f"trace.rank{hvd.rank()}.json").read_text())
    found = trace if isinstance(trace, list) else trace["traceEvents"]
    return sum(each["ph"] != "M" for each in found) / steps  # "M": names of tracks


@contextlib.contextmanager
def recorded(path: Path) -> Iterator[None]:
    hvd.start_timeline(str(path))
    try:
        yield
    finally:
        hvd.stop_timeline()


def report(
    times: dict[str, list[float]], events: dict[str, float], parameters: int, args: argparse.Namespace
) -> list[str]:
    """Print and write the tables; which targets are missed."""
    figures = figures_of(times, parameters)
    sums = times.pop(SUM)
    costs = {OPTIMIZER: min(times[OPTIMIZER]) - min(times[COMPUTE_ONLY])}
    costs |= {name: min(times[name]) - min(times[NOTHING]) for name in (FARANDOLE, GLOO)}
    medians = {name: median_difference(times[name], times[NOTHING]) for name in (FARANDOLE, GLOO)}
    limits = {
        f"{SUMS_LIMIT} sums": SUMS_LIMIT * min(sums),
        f"{SHARE_LIMIT} times what DDP over gloo costs": SHARE_LIMIT * costs[GLOO],
    }
    percents = {name: count * EVENT_SECONDS / min(times[name]) * 1e5 for name, count in events.items()}
    missed = [
        f"{name} costs {costs[name]:.1f} ms, wanted at most {limit}: {most:.1f} ms"
        for name in (OPTIMIZER, FARANDOLE)
        for limit, most in limits.items()
        if costs[name] > most
    ]
    missed += [f"timeline of {name}" for name, percent in percents.items() if percent > EVENTS_LIMIT_PERCENT]
    lines = heading(parameters, args)
    lines += [
        "",
        "| way | minimum | median | beside compute only, minimums | medians | more than compute only, median |",
        "|---|---:|---:|---:|---:|---:|",
        *(row(name, taken, times[COMPUTE_ONLY]) for name, taken in times.items()),
        "",
        f"One blocking sum of all gradients takes {min(sums):.1f} / {statistics.median(sums):.1f} ms (minimum / "
        "median). By the minimums,",
        f"DistributedOptimizer costs {costs[OPTIMIZER]:.1f} ms beside compute only. Beside DDP that exchanges nothing, "
        "DDP over",
        f"farandole costs {costs[FARANDOLE]:.1f} ms and DDP over gloo {costs[GLOO]:.1f} ms; by the medians of the "
        "differences in each round",
        f"{medians[FARANDOLE]:.1f} and {medians[GLOO]:.1f} ms.",
        *(f"Missed: {each}." for each in missed),
        "",
        "## Timeline",
        "",
        f"Events of a step on rank 0, at {EVENT_SECONDS * 1e9:.0f} ns each; the target is less than "
        f"{EVENTS_LIMIT_PERCENT:.0f} % of the step.",
        "",
        "| way | events | microseconds | of the step |",
        "|---|---:|---:|---:|",
        *(
            f"| {name} | {count:.0f} | {count * EVENT_SECONDS * 1e6:.1f} | {percents[name]:.4f} % |"
            for name, count in events.items()
        ),
    ]
    if hvd.rank() == 0:
        print("\n".join(lines), flush=True)
        if missed:
            print(f"missed: {'; '.join(missed)}", file=sys.stderr, flush=True)
        if args.output:
            args.output.write_text("\n".join(lines) + "\n")
            args.output.with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n")
    return missed


def figures_of(times: dict[str, list[float]], parameters: int) -> dict[str, Any]:
    """What core/benchmarks/chart.py draws, and other programs read."""
    return {
        "torch": torch.__version__,
        "processor": processor(),
        "cores": os.cpu_count(),
        "ranks": hvd.size(),
        "model": f"transformer, {parameters / 1e6:.1f} million parameters",
        "ways": {name: {"min_ms": min(ms), "median_ms": statistics.median(ms)} for name, ms in times.items()},
    }


def median_difference(taken: list[float], bare: list[float]) -> float:
    """Milliseconds, of the differences in each round."""
    return statistics.median(mine - other for mine, other in zip(taken, bare, strict=True))


def row(name: str, taken: list[float], bare: list[float]) -> str:
    least, median = min(taken), statistics.median(taken)
    ratios = f"{least / min(bare):.2f} | {median / statistics.median(bare):.2f}"
    return f"| {name} | {least:.1f} | {median:.1f} | {ratios} | {median_difference(taken, bare):.1f} |"


def heading(parameters: int, args: argparse.Namespace) -> list[str]:
    return [
        "# PyTorch",
        "",
        "Written by `python3 noxfile.py -s bench -- plugins/torch/benchmarks/run.py`;",
        "[run.py](../../plugins/torch/benchmarks/run.py) says what is measured.",
        "",
        f"PyTorch {torch.__version__}, {hvd.size()} ranks of one thread each on one machine: {os.cpu_count()} cores of "
        f"{processor()}.",
        "",
        "## A step of a transformer",
        "",
        f"{parameters / 1e6:.1f} million parameters, {args.layers} layers of width {args.width}, {args.rows} rows of "
        f"{args.context} bytes on each rank,",
        f"AdamW; milliseconds a step, in {args.rounds} rounds of {args.steps} steps of each way. The targets: "
        "DistributedOptimizer",
        f"beside compute only, and DDP over Farandole beside DDP that exchanges nothing, cost at most {SUMS_LIMIT} "
        "times what one",
        f"blocking sum of all gradients takes, and at most {SHARE_LIMIT} times what DDP over gloo costs.",
    ]


def processor() -> str:
    with open("/proc/cpuinfo") as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
