"""Allreduce beside Open MPI, MPICH and gloo, and beside what the machine allows; ends with 1 where a target is missed.

    python3 noxfile.py -s bench -- core/benchmarks/run.py
    python3 noxfile.py -s bench -- core/benchmarks/run.py --output docs/benchmarks
    python3 noxfile.py -s bench -- core/benchmarks/run.py --only pair tcp --sizes 4 65536 1048576 --seconds 0.2

docs/benchmarks/README.md says how it measures and how to read what it prints.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from contestants import Contestant, ContestantError, Recipe, settings_of_intel_mpi
from tables import FACE, KERNEL, LIMIT, OURS, Report, Table, end, figure_lines, table_lines
from targets import KERNEL_BYTES, KIB, MIB, target_results
from turns import Entry, Round, Times

HERE = Path(__file__).resolve().parent
SIZES = [4 << power for power in range(27)]  # bytes: 4 to 256 MiB
ORDER_SIZES = (64 * KIB, MIB, 16 * MIB)
PAIR, CROWD, SLOTS = 2, 4, 64
DRAM_BYTES = 256 * MIB  # beyond every cache
# Over all sizes: a machine has phases of seconds or minutes in which all takes longer, and each size meets several.
RUNS = 5
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
TCP = {"FARANDOLE_ARENAS": "0"}

PAIR_LIMITS = (
    "Limit: up to 64 B an exchange of cache lines; from 4 KiB to 32 MiB reading and adding what the other core has "
    "just written, both ways at once; above, the bytes of all ranks over the in-place bandwidth of the memory."
)
CROWD_LIMITS = "Limit: the bytes of all ranks over the in-place bandwidth of the memory."
TCP_LIMITS = "Limit: the same bytes sent and received by bare sockets, both ways at once, with the best of five chunks."


class Bench:
    """One run: starts worlds one after the other and measures them."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._worlds = 0
        self.tables: list[Table] = []
        self.figures: dict[str, tuple[float, str]] = {}

    def ours(self, name: str = OURS, **variables: str) -> Recipe:
        return Recipe(name, (str(self._options.programs / "frd_worker"),), variables=variables)

    def peers(self) -> list[Recipe]:
        found = []
        if self._options.openmpi:
            options = ("--oversubscribe", "--bind-to", "none")
            found.append(self._mpi("Open MPI", "openmpi", self._options.openmpi, *options))
        if self._options.mpich:
            found.append(self._mpi("MPICH", "mpich", self._options.mpich))
        if self._options.impi:
            intel = self._mpi("Intel MPI", "mpich", self._options.impi)
            found.append(replace(intel, variables={**intel.variables, **settings_of_intel_mpi(self._options.impi)}))
        return [*found, self._python("gloo", "c10d_worker.py", "gloo")]

    def _mpi(self, name: str, kind: str, prefix: Path, *options: str) -> Recipe:
        command = (str(self._options.programs / "mpi_worker"), kind, str(next(prefix.glob("lib/libmpi.so.[14]*"))))
        return Recipe(name, command, (str(prefix / "bin/mpiexec"), *options, "-n", "{ranks}"), ROOT_MAY)

    def face(self, **variables: str) -> Recipe:
        return self._python(FACE, "torch_worker.py", **variables)

    @staticmethod
    def _python(name: str, script: str, *arguments: str, **variables: str) -> Recipe:
        return Recipe(name, (sys.executable, str(HERE / script), *arguments), variables=variables)

    @contextlib.contextmanager
    def _started(self, ranks: int, recipes: list[Recipe]) -> Iterator[dict[str, Contestant]]:
        self._worlds += 1
        home = self._folder / str(self._worlds)
        home.mkdir()
        with contextlib.ExitStack() as ending:
            contestants = {}
            for recipe in recipes:
                contestant = Contestant(recipe, ranks, home)
                ending.callback(contestant.close)
                contestants[recipe.name] = contestant
            yield contestants

    @contextlib.contextmanager
    def _limits(self) -> Iterator[Contestant]:
        """One process per core, at most one per rank of a pair."""
        with self._started(PAIR, [Recipe(LIMIT, (str(self._options.programs / "limits_worker"),))]) as started:
            yield started[LIMIT]

    def sweep(self, table: Table, recipes: list[Recipe], limits: list[tuple[str, int, int, int]]) -> None:
        """Fill the table. `limits`: what is asked of the machine, from which size to which, always with which."""
        self.tables.append(table)
        begin = time.monotonic()
        print(f"\n==> {table.title}", flush=True)
        with self._limits() as machine, self._started(table.ranks, recipes) as contestants:
            entries = [Entry(each.name, contestants[each.name], most_bytes=each.most_bytes) for each in recipes]
            entries += [Entry(LIMIT, machine, *limit) for limit in limits]
            turns = Round(entries, self._options.seconds / RUNS)
            for run, size in itertools.product(range(RUNS), self._options.sizes):
                row = turns.measure(size)
                if row.get(LIMIT) and _limit_of(limits, size) == "memory":
                    row[LIMIT] = _scaled(row[LIMIT], table.ranks * size / (PAIR * DRAM_BYTES))
                table.rows[size] = row
                if size == self._options.sizes[-1]:
                    print(f"run {run + 1} of {RUNS} ({time.monotonic() - begin:.0f} s)", flush=True)
            table.gone = turns.gone
            table.share_best([size for size in table.rows if _limit_of(limits, size) == "memory"])
            print("\n".join(table_lines(table)), flush=True)
        for name, why in table.gone.items():
            print(f"{name} sat larger sizes out: {why}")
        print(f"({time.monotonic() - begin:.0f} s)", flush=True)
        if OURS in table.gone or LIMIT in table.gone:
            raise ContestantError(table.gone.get(OURS) or table.gone[LIMIT])

    def pair(self) -> None:
        kernel = Recipe(KERNEL, (str(self._options.programs / "kernel_worker"),), most_bytes=KERNEL_BYTES)
        recipes = [self.ours(), kernel, *self.peers(), self.face()]
        table = Table("pair", "2 ranks, one group", PAIR, PAIR_LIMITS, [recipe.name for recipe in recipes])
        memory = ("memory", 64 * MIB, 1 << 62, DRAM_BYTES)
        self.sweep(table, recipes, [("exchange", 4, SLOTS, 4), ("cross", 4 * KIB, 32 * MIB, 0), memory])

    def crowd(self) -> None:
        recipes = [self.ours(), *self.peers(), self.face()]
        title = f"4 ranks on {len(os.sched_getaffinity(0))} cores, one group"
        table = Table("crowd", title, CROWD, CROWD_LIMITS, [recipe.name for recipe in recipes])
        self.sweep(table, recipes, [("memory", 64 * MIB, 1 << 62, DRAM_BYTES)])

    def tcp(self) -> None:
        recipes = [self.ours(**TCP), self.peers()[-1]]
        table = Table("tcp", "2 ranks, tcp only", PAIR, TCP_LIMITS, [recipe.name for recipe in recipes])
        self.sweep(table, recipes, [("socket", 4, 1 << 62, 0)])

    def order(self) -> None:
        """The cost of the fixed order of summation, where there is a choice: over tcp with more than 2 ranks."""
        print("\n==> The fixed order of summation beside any order, tcp only", flush=True)
        for ranks in (3, 4):
            with self._started(
                ranks, [self.ours(order, **TCP, FARANDOLE_ORDER=order) for order in ("fixed", "any")]
            ) as orders:
                turns = Round([Entry(name, contestant) for name, contestant in orders.items()], self._options.seconds)
                for size in ORDER_SIZES:
                    row = turns.measure(size)
                    what = f"FARANDOLE_ORDER=fixed over any, tcp, {ranks} ranks, {size // KIB} KiB"
                    self._note(what, row["fixed"].min_us / row["any"].min_us, "times")

    def python(self) -> None:
        """Single figures from Python."""
        print("\n==> From Python", flush=True)
        seconds: dict[str, list[float]] = {"named": [], "many": [], "init": []}
        with self._started(PAIR, [self._python("numpy", "face_worker.py")]) as started:
            numpy = started["numpy"]
            for _ in range(10):
                seconds["named"] += numpy.measure(16, 1, 500, "named")
                seconds["many"] += numpy.measure(0, 1, 100, "many")
            messages = max(numpy.measure(0, 1, 50, "messages"))
            seconds["init"] = numpy.measure(0, 1, 20, "init")
        named = "named sum of 4 floats from numpy, submission to completion"
        self._note(f"{named}, minimum", min(seconds["named"]) * 1e6, "us")
        self._note(f"{named}, median", statistics.median(seconds["named"]) * 1e6, "us")
        self._note("step of 150 small arrays in random order, minimum", min(seconds["many"]) * 1e6, "us")
        self._note("step of 150 small arrays in random order, median", statistics.median(seconds["many"]) * 1e6, "us")
        self._note("negotiation messages in a steady step on one host", messages, "")
        self._note("init and shutdown, 2 ranks", statistics.median(seconds["init"]) * 1e3, "ms")
        self._note("import farandole", _import_s() * 1e3, "ms")

    def machine(self) -> None:
        """The figures that the limits are made of."""
        print("\n==> The machine", flush=True)
        with self._limits() as limits:
            hop = min(limits.measure(4, 1000, 50, "hop"))
            exchange = min(limits.measure(4, 1000, 50, "exchange"))
            memory = min(limits.measure(DRAM_BYTES, 1, 10, "memory"))
        self._note("a cache line from core to core, one way", hop * 1e6, "us")
        self._note("an exchange of cache lines", exchange * 1e6, "us")
        self._note(
            "in-place bandwidth of the memory, both cores, read or written", PAIR * DRAM_BYTES / memory / 1e9, "GB/s"
        )

    def _note(self, what: str, value: float, unit: str) -> None:
        self.figures[what] = (value, unit)
        print(figure_lines({what: (value, unit)})[0], flush=True)


def _limit_of(limits: list[tuple[str, int, int, int]], size: int) -> str:
    return next((what for what, least, most, _ in limits if least <= size <= most), "")


def _scaled(times: Times, factor: float) -> Times:
    return Times(times.min_us * factor, times.median_us * factor, times.batches)


def _import_s() -> float:
    """The best of five, without what Python itself takes to start."""
    code = "import time; start = time.perf_counter(); import farandole; print(time.perf_counter() - start)"
    command = [sys.executable, "-c", code]
    return min(float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(5))


def _machine() -> dict[str, Any]:
    """The hardware and versions that the figures depend on."""
    import torch

    with open("/proc/cpuinfo") as file:
        models = [text.split(":", 1)[1].strip() for text in file if text.startswith("model name")]
    return {
        "date": datetime.date.today().isoformat(),
        "processor": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load before": f"{os.getloadavg()[0]:.1f}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def main() -> int:
    parts = ("machine", "pair", "crowd", "tcp", "order", "python")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True, help="folder of the compiled workers")
    parser.add_argument("--openmpi", type=Path, help="prefix of Open MPI; without it, it is not measured")
    parser.add_argument("--mpich", type=Path, help="prefix of MPICH")
    parser.add_argument("--impi", type=Path, help="prefix of Intel MPI")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, metavar="PART", help=", ".join(parts))
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    parser.add_argument("--seconds", type=float, default=0.6, help="about how long each contestant has for each size")
    parser.add_argument("--output", type=Path, help="folder for allreduce.md and allreduce.json")
    options = parser.parse_args()
    machine = _machine()
    with tempfile.TemporaryDirectory(prefix="farandole-bench-", dir="/dev/shm") as folder:
        bench = Bench(options, Path(folder))
        for part in parts:
            if part in options.only:
                getattr(bench, part)()
    results = target_results(bench.tables, bench.figures)
    if options.output:
        Report(machine, bench.tables, bench.figures, results).write(options.output)
    return end(results)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ContestantError as error:
        sys.exit(f"benchmark: {error}")
