"""The cost of an allreduce that a library carries, beside the library called directly and beside our own backend.

    python3 noxfile.py -s bench -- core/benchmarks/backends.py
    python3 noxfile.py -s bench -- core/benchmarks/backends.py --output docs/benchmarks/backends.md

Ends with 1 where a library carries an operation with more overhead than it may, or is faster than our own backend.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from contestants import Contestant, ContestantError, Recipe, settings_of_intel_mpi
from tables import cell
from turns import Entry, Round, Times, readable

SIZES = [4, 4096, 65536, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
RANKS = 2
LARGE = 4 << 20  # from here on the overhead is a share, below a time
MOST_SHARE, MOST_US = 0.15, 20.0
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
NATIVE = "native"


@dataclass(frozen=True)
class Library:
    """A library, and how its launcher starts a program."""

    title: str
    path: str
    launcher: tuple[str, ...]
    variables: dict[str, str]
    directly: tuple[str, ...]  # the command of a rank that calls it itself
    backends: str

    @property
    def carried(self) -> str:
        return f"over {self.title}"

    @property
    def direct(self) -> str:
        return f"{self.title} directly"

    def recipes(self, programs: Path) -> list[Recipe]:
        settings = {**self.variables, "FARANDOLE_BACKEND": self.backends}
        return [
            Recipe(self.carried, (str(programs / "frd_worker"),), self.launcher, settings),
            Recipe(self.direct, self.directly, self.launcher, self.variables),
        ]


def mpi(title: str, kind: str, prefix: Path, programs: Path, *options: str) -> Library:
    path = str(next(prefix.glob("lib/libmpi.so.[14]*")))
    launcher = (str(prefix / "bin" / "mpiexec"), *options, "-n", "{ranks}")
    directly = (str(programs / "mpi_worker"), kind, path, "threads")
    return Library(title, path, launcher, {**ROOT_MAY, "FARANDOLE_MPI_LIB": path}, directly, "mpi,native")


def intel_mpi(prefix: Path, programs: Path) -> Library:
    found = mpi("Intel MPI", "mpich", prefix, programs)
    return replace(found, variables={**found.variables, **settings_of_intel_mpi(prefix)})


def libraries(options: argparse.Namespace) -> list[Library]:
    found = []
    if options.openmpi:
        switches = ("--oversubscribe", "--bind-to", "none")
        found.append(mpi("Open MPI", "openmpi", options.openmpi, options.programs, *switches))
    if options.mpich:
        found.append(mpi("MPICH", "mpich", options.mpich, options.programs))
    if options.impi:
        found.append(intel_mpi(options.impi, options.programs))
    return found


def measure(found: list[Library], options: argparse.Namespace, folder: Path) -> dict[int, dict[str, Times]]:
    """All in turns: our own backend, and each library as it is and below us."""
    recipes = [Recipe(NATIVE, (str(options.programs / "frd_worker"),))]
    recipes += [recipe for library in found for recipe in library.recipes(options.programs)]
    contestants: dict[str, Contestant] = {}
    try:
        for recipe in recipes:
            contestants[recipe.name] = Contestant(recipe, RANKS, folder)
        entries = [Entry(each.name, contestants[each.name], most_bytes=each.most_bytes) for each in recipes]
        turns = Round(entries, options.seconds)
        rows = {size: turns.measure(size) for size in options.sizes}
    finally:
        for each in contestants.values():
            each.close()
    for name, why in turns.gone.items():
        raise ContestantError(f"{name}: {why}")
    return rows


def misses(library: Library, rows: dict[int, dict[str, Times]]) -> list[str]:
    """By the minimum: where the library's operation costs more than it may, or ours as much as the library's."""
    found = []
    for size, row in rows.items():
        native, direct = row[NATIVE].min_us, row[library.direct].min_us
        overhead = row[library.carried].min_us - direct
        most = MOST_SHARE * direct if size >= LARGE else MOST_US
        where = f"{library.title}, {readable(size)}"
        if overhead > most:
            found.append(f"{where}: {overhead:.1f} us of overhead, wanted at most {most:.1f} us")
        if native >= direct:
            found.append(f"{where}: {NATIVE} takes {native:.2f} us, wanted less than the library's {direct:.2f} us")
    return found


def table(found: list[Library], rows: dict[int, dict[str, Times]]) -> list[str]:
    heads = ["size", NATIVE]
    for library in found:
        heads += [library.carried, library.direct, "overhead"]
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for size, row in rows.items():
        cells = [readable(size), cell(row[NATIVE])]
        for library in found:
            carried, direct = row[library.carried], row[library.direct]
            cells += [cell(carried), cell(direct), f"{carried.min_us - direct.min_us:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def head() -> list[str]:
    date, kernel = datetime.date.today().isoformat(), platform.release()
    return [
        "# Operations that a library carries",
        "",
        f"In-place float32 sums among {RANKS} ranks on one host, in turns. Cells are microseconds, minimum / median.",
        "*native*: our own backend. *over*: the same program, carried by the library. *directly*: its own allreduce,",
        "in a process that asked for threads as ours does (without, MPICH takes three times as long for 1 MiB).",
        "*overhead*: of the minimums; it may be 20 us, and 15 % from 4 MiB on, and *native* must be ahead of the",
        "library at every size. Written by",
        "`python3 noxfile.py -s bench -- core/benchmarks/backends.py --output docs/benchmarks/backends.md`.",
        "",
        f"date {date}, cores {os.cpu_count()}, kernel {kernel}.",
        "",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True, help="folder of the compiled workers")
    parser.add_argument("--openmpi", type=Path, help="prefix of Open MPI; without it, it is not measured")
    parser.add_argument("--mpich", type=Path, help="prefix of MPICH")
    parser.add_argument("--impi", type=Path, help="prefix of Intel MPI")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    parser.add_argument("--seconds", type=float, default=0.6, help="about how long each contestant has for each size")
    parser.add_argument("--output", type=Path, help="the file to write")
    options = parser.parse_args()
    found = libraries(options)
    with tempfile.TemporaryDirectory(prefix="farandole-bench-", dir="/dev/shm") as folder:
        rows = measure(found, options, Path(folder))
    missed = [miss for library in found for miss in misses(library, rows)]
    lines = [*head(), *table(found, rows), "", f"Missed: {'; '.join(missed) or 'nothing'}."]
    print("\n".join(table(found, rows)), flush=True)
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")
    print("\n".join(f"MISSED  {each}" for each in missed) or "All targets are met.")
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ContestantError as error:
        sys.exit(f"benchmark: {error}")
