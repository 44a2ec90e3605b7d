"""Whether a build is as fast as the one before it: both in turns, pair by pair, and the old one beside itself.

    python3 core/benchmarks/gate.py --old PROGRAMS PACKAGES --new PROGRAMS PACKAGES

PROGRAMS is a folder with that build's frd_worker (CMake's target of this name, with FARANDOLE_BENCHMARKS=ON), PACKAGES
one that holds its Python package `farandole` with the compiled module. Needs numpy.

A ratio is new over old, of turns that follow each other. The median of all pairs may be 1.01, or what the old build
shows beside itself in the same run where that is more. What is above it, up to 1.03, is to be measured once more; the
program ends with 1 where that or more was found.
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
    """What one row found, pair by pair."""

    what: str
    new: list[float] = field(default_factory=list)  # new over old
    old: list[float] = field(default_factory=list)  # old over old

    @property
    def limit(self) -> float:
        """Noise has no direction: the old build beside itself counts either way."""
        itself = statistics.median(self.old)
        return max(MET, itself, 1 / itself)

    @property
    def verdict(self) -> str:
        found = statistics.median(self.new)
        return "met" if found <= self.limit else "again" if found <= AGAIN else "missed"

    def line(self) -> str:
        new, old = statistics.median(self.new), statistics.median(self.old)
        return f"{self.what:32}  new : old {new:.3f}   old : old {old:.3f}   {self.verdict}"


def turn(contestant: Contestant, what: str, size_bytes: int, seconds: float, once: float) -> float:
    """The best batch of a turn of about so many seconds."""
    repetitions = max(1, min(400, int(BATCH_S / once)))
    batches = max(4, min(100, int(seconds / (once * repetitions))))
    return min(contestant.measure(size_bytes, repetitions, batches, what))


def measure(row: Ratios, trio: Sequence[Contestant], size_bytes: int, what: str, options: argparse.Namespace) -> None:
    """Old, new and old once more take turns; each is as often the first, the second and the third."""
    once = max(min(each.measure(size_bytes, 1, 4, what)) for each in trio)
    for pair in range(options.pairs // STARTS):
        times = [0.0] * len(trio)
        for place in range(len(trio)):
            at = (pair + place) % len(trio)
            times[at] = turn(trio[at], what, size_bytes, options.seconds, once)
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
                for at in (start, (start + 1) % STARTS, (start + 2) % STARTS):
                    started[at] = Contestant(recipe_of[at], RANKS, Path(home))
                    ending.callback(started[at].close)
                trio = [started[at] for at in range(len(started))]
                for size, row in rows.items():
                    measure(row, trio, size, "named" if name == "Python" else "allreduce", options)
        for row in rows.values():
            print(row.line(), flush=True)
        found += rows.values()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for build in ("--old", "--new"):
        parser.add_argument(build, type=Path, nargs=2, required=True, metavar=("PROGRAMS", "PACKAGES"))
    parser.add_argument("--pairs", type=int, default=21, help="a multiple of 3")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes")
    parser.add_argument("--seconds", type=float, default=0.1, help="about how long a turn takes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="farandole-gate-", dir="/dev/shm") as folder:
        found = run(options, Path(folder))
    return 0 if all(each.verdict == "met" for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
