"""What carrying an allreduce by a library costs, beside the library called directly and beside our own back end.

    python3 noxfile.py -s bench_backends
    python3 noxfile.py -s bench_backends -- --output docs/benchmarks/backends.md

Ends with 1 where a library carries an operation with more overhead than it may.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from contestants import Contestant, ContestantError, Recipe
from tables import cell
from turns import Entry, Round, Times, readable

SIZES = [4, 4096, 65536, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
RANKS = 2
LARGE = 4 << 20  # from here on the overhead is a share, below a time
MOST_SHARE, MOST_US = 0.15, 20.0
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
NATIVE, CARRIED, DIRECT = "native", "carried", "direct"


@dataclass(frozen=True)
class Library:
    """A library, and how its launcher starts a program."""

    title: str
    path: str
    launcher: tuple[str, ...]
    variables: dict[str, str]
    directly: tuple[str, ...]  # the command of a rank that calls it itself
    backends: str

    def recipes(self, programs: Path) -> list[Recipe]:
        ours = (str(programs / "frd_worker"),)
        settings = {**self.variables, "FARANDOLE_BACKEND": self.backends}
        return [
            Recipe(NATIVE, ours),
            Recipe(CARRIED, ours, self.launcher, settings),
            Recipe(DIRECT, self.directly, self.launcher, self.variables),
        ]


def mpi(title: str, kind: str, prefix: Path, programs: Path, *options: str) -> Library:
    path = str(next(prefix.glob("lib/libmpi.so.[14]*")))
    launcher = (str(prefix / "bin" / "mpiexec"), *options, "-n", "{ranks}")
    directly = (str(programs / "mpi_worker"), kind, path)
    return Library(title, path, launcher, {**ROOT_MAY, "FARANDOLE_MPI_LIB": path}, directly, "mpi,native")


def libraries(options: argparse.Namespace) -> list[Library]:
    found = []
    if options.openmpi:
        switches = ("--oversubscribe", "--bind-to", "none")
        found.append(mpi("Open MPI", "openmpi", options.openmpi, options.programs, *switches))
    if options.mpich:
        found.append(mpi("MPICH", "mpich", options.mpich, options.programs))
    return found


def measure(library: Library, options: argparse.Namespace, folder: Path) -> dict[int, dict[str, Times]]:
    contestants: dict[str, Contestant] = {}
    try:
        for recipe in library.recipes(options.programs):
            contestants[recipe.name] = Contestant(recipe, RANKS, folder)
        turns = Round([Entry(name, each) for name, each in contestants.items()], options.seconds)
        rows = {size: turns.measure(size) for size in options.sizes}
    finally:
        for each in contestants.values():
            each.close()
    for name, why in turns.gone.items():
        raise ContestantError(f"{library.title}, {name}: {why}")
    return rows


def misses(title: str, rows: dict[int, dict[str, Times]]) -> list[str]:
    """The sizes at which the library's operation costs more than it may, by the minimum."""
    found = []
    for size, row in rows.items():
        overhead = row[CARRIED].min_us - row[DIRECT].min_us
        most = MOST_SHARE * row[DIRECT].min_us if size >= LARGE else MOST_US
        if overhead > most:
            found.append(f"{title}, {readable(size)}: {overhead:.1f} us of overhead, wanted at most {most:.1f} us")
    return found


def table(title: str, rows: dict[int, dict[str, Times]]) -> list[str]:
    lines = [
        f"## {title}",
        "",
        f"| size | native | over {title} | {title} directly | overhead |",
        "|---|---|---|---|---|",
    ]
    for size, row in rows.items():
        overhead = row[CARRIED].min_us - row[DIRECT].min_us
        words = f"{overhead:.1f} us, {100 * overhead / row[DIRECT].min_us:.0f} %"
        lines.append(
            f"| {readable(size)} | {cell(row[NATIVE])} | {cell(row[CARRIED])} | {cell(row[DIRECT])} | {words} |"
        )
    return [*lines, ""]


def head() -> list[str]:
    date, kernel = datetime.date.today().isoformat(), platform.release()
    return [
        "# Operations that a library carries",
        "",
        f"In-place float32 sums among {RANKS} ranks on one host. Cells are microseconds, minimum / median; smaller is",
        "better. *native*: our own back end. *over*: the same program, carried by the library. *directly*: its own",
        "allreduce, called without Farandole. The overhead is that of the minimums. Written by",
        "`python3 noxfile.py -s bench_backends -- --output docs/benchmarks/backends.md`; [how it measures](README.md).",
        "",
        f"date {date}, cores {os.cpu_count()}, kernel {kernel}.",
        "",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True, help="folder of the compiled workers")
    parser.add_argument("--openmpi", type=Path, help="prefix of Open MPI; without it, it is not measured")
    parser.add_argument("--mpich", type=Path, help="prefix of MPICH")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    parser.add_argument("--seconds", type=float, default=0.6, help="about how long each contestant has for each size")
    parser.add_argument("--output", type=Path, help="the file to write")
    options = parser.parse_args()
    lines, missed = head(), []
    for library in libraries(options):
        with tempfile.TemporaryDirectory(prefix="farandole-bench-", dir="/dev/shm") as folder:
            rows = measure(library, options, Path(folder))
        print("\n".join(table(library.title, rows)), flush=True)
        lines += table(library.title, rows)
        missed += misses(library.title, rows)
    if options.output:
        options.output.write_text("\n".join(lines[:-1]) + "\n")
    print("\n".join(f"MISSED  {each}" for each in missed) or "All targets are met.")
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ContestantError as error:
        sys.exit(f"benchmark: {error}")
