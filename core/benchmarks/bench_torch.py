"""Allreduce beside torch.distributed's gloo, in the same processes; and what a call, an init and an import cost.

    python3 noxfile.py -s bench
    python3 noxfile.py -s bench -- --output docs/benchmarks --ranks 2

Every rank process initialises both libraries. For each size they take turns, batch by batch, so that both see the same
machine. A batch's time is that of its slowest rank, divided by its operations. On a shared machine compare minimums.
Ends with 1 where a target is missed, and names it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from farandole.testing import World

SIZES = [4, 16, 64, 256] + [1024 * 4**k for k in range(10)]  # bytes: 4 to 256 MiB
CALL_BYTES = 16
ROUNDS = 1000  # at most, of one batch each
BATCH_S = 0.0005


# ---- In the rank processes -------------------------------------------------------------------------------------------


def prepare(folder: str) -> None:
    """Initialise both libraries."""
    import farandole_torch as hvd
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    hvd.init()
    store = dist.FileStore(f"{folder}/store", hvd.size())
    dist.init_process_group("gloo", store=store, rank=hvd.rank(), world_size=hvd.size())


def measure(size_bytes: int, seconds: float) -> dict[str, list[float]]:
    """Seconds per operation of each batch, for both libraries, in about `seconds`."""
    import farandole_torch as hvd
    import torch
    import torch.distributed as dist

    tensor = torch.zeros(size_bytes // 4)
    calls = {
        "farandole": lambda: hvd.allreduce_(tensor, op=hvd.Sum),
        "gloo": lambda: dist.all_reduce(tensor),
    }
    times: dict[str, list[float]] = {}
    plans: dict[str, tuple[int, int]] = {}
    for name, call in calls.items():
        call()
        once = min(timed(call, 1) for _ in range(3))
        batch = max(1, min(100, int(BATCH_S / once)))
        plans[name] = hvd.broadcast_object((batch, max(3, min(ROUNDS, int(seconds / 2 / (once * batch))))))
        times[name] = []
    for turn in range(max(rounds for _, rounds in plans.values())):
        for name, call in calls.items():
            batch, rounds = plans[name]
            if turn < rounds:
                call()  # brings the ranks together
                times[name].append(timed(call, batch))
    return times


def measure_life(times: int) -> float:
    """Seconds of one init and shutdown, on average."""
    import farandole

    farandole.shutdown()
    start = time.perf_counter()
    for _ in range(times):
        farandole.init()
        farandole.shutdown()
    average = (time.perf_counter() - start) / times
    farandole.init()
    return average


def timed(call: Any, repetitions: int) -> float:
    """Seconds per call."""
    start = time.perf_counter()
    for _ in range(repetitions):
        call()
    return (time.perf_counter() - start) / repetitions


# ---- Here ------------------------------------------------------------------------------------------------------------


def sweep(ranks: int, sizes: list[int], seconds: float) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """One row per size, and the single figures."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, World(ranks) as world:
        world.run(prepare, folder, timeout=120)
        for size in sizes:
            by_rank = world.run(measure, size, seconds, timeout=60 + 10 * seconds)
            row: dict[str, Any] = {"ranks": ranks, "bytes": size}
            for name in ("farandole", "gloo"):
                batches = [max(batch) for batch in zip(*(times[name] for times in by_rank), strict=True)]
                row[name] = {"min_us": min(batches) * 1e6, "median_us": statistics.median(batches) * 1e6}
            row["ratio"] = row["gloo"]["min_us"] / row["farandole"]["min_us"]
            row["median_ratio"] = row["gloo"]["median_us"] / row["farandole"]["median_us"]
            rows.append(row)
            print(line(row), flush=True)
        single: dict[str, float] = {"init_ms": max(world.run(measure_life, 20, timeout=120)) * 1e3}
        for times in [world.run(measure, CALL_BYTES, seconds, timeout=120)]:
            batches = [max(batch) * 1e6 for batch in zip(*(each["farandole"] for each in times), strict=True)]
            single.update(call_min_us=min(batches), call_median_us=statistics.median(batches))
    return rows, single


def import_seconds() -> float:
    """The best of five, without what Python itself takes to start."""
    code = "import time; start = time.perf_counter(); import farandole; print(time.perf_counter() - start)"
    command = [sys.executable, "-c", code]
    return min(float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(5))


def missed(rows: list[dict[str, Any]], single: dict[str, float]) -> list[str]:
    """One sentence per target that is not met."""
    sentences = []
    for row in rows:
        where = f"allreduce of {readable(row['bytes'])} on {row['ranks']} ranks"
        wanted = 5.0 if row["bytes"] <= 1024 or row["bytes"] == 64 * 2**20 else 1.0
        if row["ratio"] < wanted:
            sentences.append(f"{where} is {row['ratio']:.2f} times as fast as gloo; the target is {wanted:g} times")
    limits = {
        "call_min_us": (15, "a blocking allreduce of 4 floats on 2 ranks, minimum, us"),
        "call_median_us": (40, "a blocking allreduce of 4 floats on 2 ranks, median, us"),
        "init_ms": (50, "init and shutdown on 2 ranks, ms"),
        "import_s": (0.2, "import farandole, s"),
    }
    for name, (limit, what) in limits.items():
        if name in single and single[name] >= limit:
            sentences.append(f"{what}: {single[name]:.3g}; the target is below {limit:g}")
    return sentences


def readable(size_bytes: int) -> str:
    for unit, factor in (("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= factor:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"


def line(row: dict[str, Any]) -> str:
    ours, gloo = row["farandole"], row["gloo"]
    return (
        f"| {row['ranks']} | {readable(row['bytes'])} | {ours['min_us']:.1f} | {ours['median_us']:.1f} | "
        f"{gloo['min_us']:.1f} | {gloo['median_us']:.1f} | {row['ratio']:.1f} | {row['median_ratio']:.1f} |"
    )


HEADER = (
    "| ranks | size | farandole min | median | gloo min | median | ratio of minimums | of medians |\n"
    "|---|---|---|---|---|---|---|---|"
)


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    import torch

    with open("/proc/cpuinfo") as file:
        models = [text.split(":", 1)[1].strip() for text in file if text.startswith("model name")]
    return {
        "date": datetime.date.today().isoformat(),
        "processor": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def write(folder: Path, rows: list[dict[str, Any]], single: dict[str, float], sentences: list[str]) -> None:
    """allreduce.md for people and allreduce.json for programs."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = machine()
    report = {"machine": facts, "rows": rows, "single": single, "missed": sentences}
    (folder / "allreduce.json").write_text(json.dumps(report, indent=1) + "\n")
    text = [
        "# Allreduce beside torch.distributed's gloo",
        "",
        "In-place float32 sums from Python, in microseconds. Written by `core/benchmarks/bench_torch.py`, which says",
        "how it measures: `python3 noxfile.py -s bench -- --output docs/benchmarks`.",
        "",
        ", ".join(f"{name} {value}" for name, value in facts.items()) + ".",
        "",
        HEADER,
        *map(line, rows),
        "",
        *singles(single),
        "",
        *([f"Targets missed: {'; '.join(sentences)}."] if sentences else ["All targets are met."]),
        "",
    ]
    (folder / "allreduce.md").write_text("\n".join(text))


def singles(single: dict[str, float]) -> list[str]:
    lines = [f"- `import farandole`: {single['import_s'] * 1e3:.0f} ms"]
    if "init_ms" in single:
        lines += [
            f"- init and shutdown, 2 ranks: {single['init_ms']:.1f} ms",
            f"- blocking allreduce of 4 floats, 2 ranks: minimum {single['call_min_us']:.1f} us, median "
            f"{single['call_median_us']:.1f} us",
        ]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    parser.add_argument("--seconds", type=float, default=3.0, help="about how long each size takes")
    parser.add_argument("--output", type=Path, help="folder for allreduce.md and allreduce.json")
    args = parser.parse_args()
    rows, single = [], {"import_s": import_seconds()}
    print(HEADER, flush=True)
    for ranks in args.ranks:
        more, figures = sweep(ranks, args.sizes, args.seconds)
        rows += more
        if ranks == 2:
            single.update(figures)
    print("\n" + "\n".join(singles(single)))
    sentences = missed(rows, single)
    if args.output:
        write(args.output, rows, single, sentences)
    print("\n".join(f"MISSED: {sentence}" for sentence in sentences) or "All targets are met.")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
