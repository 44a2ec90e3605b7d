"""Compares the speed of two builds, old and new, in turns; the old one also with itself, which shows the noise.

    python3 core/benchmarks/gate.py --old PROGRAMS PACKAGES --new PROGRAMS PACKAGES

PROGRAMS is a folder with that build's frd_worker (CMake's target of this name, with FARANDOLE_BENCHMARKS=ON), PACKAGES
one that holds its Python package `farandole` with the compiled module. Needs numpy.

A ratio is new over old, of turns that follow each other. The median of all pairs may be 1.01, or what the old build
shows beside itself in the same run where that is more. A ratio above it, up to 1.03, is to be measured once more. Where
the old build differs from itself by more than 1.03 the row is noisy and decides nothing. The program ends with 0 where
every row is met, else with 1.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contestants import Contestant, Recipe
from turns import readable

HERE = Path(__file__).resolve().parent
RANKS = 2
SIZES = (4, 64 << 10, 1 << 20, 64 << 20)
WAYS = {"shared memory": {}, "tcp": {"FARANDOLE_ARENAS": "0"}}
BATCH_S = 0.0004
STARTS = 3  # of the processes, each build once the first: that one is slower with 64 MB by a tenth, whichever it is
MET, AGAIN = 1.01, 1.03


@dataclass(frozen=True)
class Ratios:
    """The ratios of one row, pair by pair."""

    what: str
    new: list[float] = field(default_factory=list)  # new over old
    old: list[float] = field(default_factory=list)  # old over old

    @property
    def noise(self) -> float:
        """How far the old build is from itself, at least 1: noise has no direction."""
        itself = statistics.median(self.old)
        return max(itself, 1 / itself)

    @property
    def verdict(self) -> str:
        if self.noise > AGAIN:
            return "noisy"
        found = statistics.median(self.new)
        return "met" if found <= max(MET, self.noise) else "again" if found <= AGAIN else "missed"

    def line(self) -> str:
        new, old = statistics.median(self.new), statistics.median(self.old)
        return f"{self.what:32}  new : old {new:.3f}   old : old {old:.3f}   {self.verdict}"


def turn(contestant: Contestant, what: str, size_bytes: int, seconds: float, once: float) -> float:
    """The best batch of a turn of about so many seconds."""
    repetitions = max(1, min(400, int(BATCH_S / once)))
    batches = max(4, min(100, int(seconds / (once * repetitions))))
    return min(contestant.measure(size_bytes, repetitions, batches, what))


def rotated(by: int) -> list[int]:
    """The builds' positions in the trio, begun with another one."""
    return [(by + place) % STARTS for place in range(STARTS)]


def orders(start: int, pairs: int) -> list[list[int]]:
    """The order of turns in each pair of a start. Over all starts each build is as often first, second and third.

    REQUIRES: `pairs`, of all starts together, is a multiple of STARTS.
    """
    first = start * pairs // STARTS
    return [rotated(pair) for pair in range(first, first + pairs // STARTS)]


def measure(
    row: Ratios,
    trio: Sequence[Contestant],
    turns: Sequence[Sequence[int]],
    size_bytes: int,
    what: str,
    seconds: float,
) -> None:
    """Old, new and old once more take turns in these orders."""
    once = max(min(each.measure(size_bytes, 1, 4, what)) for each in trio)
    for order in turns:
        times = [0.0] * len(trio)
        for at in order:
            times[at] = turn(trio[at], what, size_bytes, seconds, once)
        row.new.append(times[1] / times[0])
        row.old.append(times[2] / times[0])


def recipes(name: str, options: argparse.Namespace, variables: dict[str, str]) -> list[Recipe]:
    """Old, new and old once more, from C or from Python."""
    made = []
    for at, (programs, packages) in enumerate((options.old, options.new, options.old)):
        command = (str(programs / "frd_worker"),) if name == "C" else (sys.executable, str(HERE / "face_worker.py"))
        made.append(Recipe(f"{name}{at}", command, variables={**variables, "PYTHONPATH": str(packages)}))
    return made


def run(options: argparse.Namespace, folder: Path) -> list[Ratios]:
    found = []
    for (way, variables), name in itertools.product(WAYS.items(), ("C", "Python")):
        sizes = {size: f"{way}, {name}, {readable(size)}" for size in options.sizes}
        if name == "Python":
            sizes = {16: f"{way}, {name}, 4 floats"}
        rows = {size: Ratios(title) for size, title in sizes.items()}
        for start in range(STARTS):
            with contextlib.ExitStack() as ending:
                home = ending.enter_context(tempfile.TemporaryDirectory(dir=folder))
                recipe_of = recipes(name, options, variables)
                started = {}
                for at in rotated(start):
                    started[at] = Contestant(recipe_of[at], RANKS, Path(home))
                    ending.callback(started[at].close)
                trio = [started[at] for at in range(len(started))]
                turns, what = orders(start, options.pairs), "named" if name == "Python" else "allreduce"
                for size, row in rows.items():
                    measure(row, trio, turns, size, what, options.seconds)
        for row in rows.values():
            print(row.line(), flush=True)
        found += rows.values()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for build in ("--old", "--new"):
        parser.add_argument(build, type=Path, nargs=2, required=True, metavar=("PROGRAMS", "PACKAGES"))
    parser.add_argument("--pairs", type=int, default=21, help="a positive multiple of 3")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes")
    parser.add_argument("--seconds", type=float, default=0.1, help="about how long a turn takes")
    options = parser.parse_args()
    if options.pairs <= 0 or options.pairs % STARTS:
        parser.error(f"--pairs is {options.pairs}; it must be a positive multiple of {STARTS}")
    with tempfile.TemporaryDirectory(prefix="farandole-gate-", dir="/dev/shm") as folder:
        found = run(options, Path(folder))
    return 0 if all(each.verdict == "met" for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
