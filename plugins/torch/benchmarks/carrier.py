"""The cost of a small all_reduce of torch.distributed over Farandole, as inference servers call it, and over gloo.

    python3 noxfile.py -s bench -- plugins/torch/benchmarks/carrier.py --output docs/benchmarks/carrier.md

or, with Farandole and PyTorch installed: `farandole run -np 2 python plugins/torch/benchmarks/carrier.py`. Ends with 1
where a target is missed.

Blocking sums of one tensor of float32, in place. Groups take turns of many calls in the same processes, of which rank r
stays on core r. The group that does nothing has an all_reduce in Python that returns at once: its time is PyTorch's.
The prepared call (`persistent_allreduce`) is the core with the least of Python around it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import farandole_torch as hvd
import farandole_torch.distributed  # registers the backend, and finds the other ranks for gloo
import torch
import torch.distributed as dist
from run import begin, processor
from tqdm import tqdm

NOTHING, OURS, GLOO, PREPARED = "nothing", "farandole", "gloo", "prepared call"
KIB = 1024
SIZES = [8, 64, 512, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB]  # bytes
OVER_NOTHING_US, OF_PREPARED, AHEAD_OF_GLOO = 1.5, 1.5, 10.0  # the targets: at 8 B, at 64 KiB, below 64 KiB

Times = dict[str, list[float]]  # microseconds of a call on the slowest rank, of each turn


class _Done(dist.Work):  # type: ignore[misc]  # torch is not read
    def wait(self, timeout: Any = None) -> bool:
        return True


class _Idle(dist.ProcessGroup):  # type: ignore[misc]
    """A group that does nothing."""

    def allreduce(self, tensors: list[Any], opts: Any = None) -> _Done:
        return _Done()

    def getBackendName(self) -> str:
        return NOTHING

    def getSize(self) -> int:
        return hvd.size()

    def getRank(self) -> int:
        return hvd.rank()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure small sums of torch.distributed.")
    parser.add_argument("--turns", type=int, default=30, help="of each contestant for each size")
    parser.add_argument("--output", type=Path, help="also write the report to this file")
    args = parser.parse_args()
    begin()
    groups = prepare()
    rows = {size: measure(size, groups, args.turns) for size in tqdm(SIZES, desc="sizes", disable=hvd.rank() != 0)}
    missed = report(rows, args.output)
    dist.destroy_process_group()
    sys.exit(1 if missed else 0)


def prepare() -> dict[str, Any]:
    dist.Backend.register_backend(NOTHING, lambda _store, rank, size, _timeout: _Idle(rank, size), devices=["cpu"])
    dist.init_process_group("gloo", init_method="farandole://")
    return {name: dist.new_group(backend=name) for name in (NOTHING, OURS, GLOO)}


def measure(size_bytes: int, groups: dict[str, Any], turns: int) -> Times:
    tensor = torch.zeros(size_bytes // 4)

    def through(group: Any) -> Callable[[], Any]:
        return lambda: dist.all_reduce(tensor, group=group)

    calls = {name: through(group) for name, group in groups.items()}
    calls[PREPARED] = hvd.persistent_allreduce(tensor, f"prepared.{size_bytes}", op=hvd.Sum)
    many = max(10, min(500, (8 << 20) // size_bytes))
    taken: Times = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, call in calls.items():
            count = many if name != GLOO else max(3, many // 20)
            hvd.barrier()
            began = time.perf_counter()
            for _ in range(count):
                call()
            if turn:  # in the first the ranks agree on names
                taken[name].append((time.perf_counter() - began) / count * 1e6)
    slowest = hvd.allreduce(torch.tensor(list(taken.values()), dtype=torch.float64), op=hvd.Max)
    return dict(zip(taken, slowest.tolist(), strict=True))


def report(rows: dict[int, Times], output: Path | None) -> list[str]:
    """Print and write the table; which targets are missed."""
    results = target_results({size: {name: min(times) for name, times in row.items()} for size, row in rows.items()})
    lines = [
        "# torch.distributed over Farandole",
        "",
        "Written by `python3 noxfile.py -s bench -- plugins/torch/benchmarks/carrier.py`;",
        "[carrier.py](../../plugins/torch/benchmarks/carrier.py) says what is measured.",
        "",
        f"PyTorch {torch.__version__}, {hvd.size()} ranks of one thread each on one machine: {os.cpu_count()} cores of "
        f"{processor()}.",
        "",
        "Microseconds of a blocking `dist.all_reduce`, minimum / median of the turns.",
        "",
        f"| bytes | {' | '.join(rows[SIZES[0]])} |",
        f"|{'---:|' * (1 + len(rows[SIZES[0]]))}",
        *(f"| {size} | {' | '.join(map(cell, row.values()))} |" for size, row in rows.items()),
        "",
        *(f"- {'met' if is_met else '**missed**'}: {what}" for what, is_met in results),
    ]
    if hvd.rank() == 0:
        print("\n".join(lines), flush=True)
        if output:
            output.write_text("\n".join(lines) + "\n")
    return [what for what, is_met in results if not is_met]


def target_results(least: dict[int, dict[str, float]]) -> list[tuple[str, bool]]:
    """The targets with what was measured, and whether they are met."""
    over = least[8][OURS] - least[8][NOTHING]
    ratio = least[64 * KIB][OURS] / least[64 * KIB][PREPARED]
    ahead = min(row[GLOO] / row[OURS] for size, row in least.items() if size < 64 * KIB)
    return [
        (f"8 B: {over:.2f} us above a group that does nothing, wanted <= {OVER_NOTHING_US}", over <= OVER_NOTHING_US),
        (f"64 KiB: {ratio:.2f} times the prepared call, wanted <= {OF_PREPARED}", ratio <= OF_PREPARED),
        (
            f"below 64 KiB: gloo takes {ahead:.0f} times as long or more, wanted >= {AHEAD_OF_GLOO:.0f}",
            ahead >= AHEAD_OF_GLOO,
        ),
    ]


def cell(times: list[float]) -> str:
    return f"{min(times):.2f} / {statistics.median(times):.2f}"


if __name__ == "__main__":
    main()
