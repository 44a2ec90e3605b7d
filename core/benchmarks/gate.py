"""Compares the speed of this checkout with that of a frozen build. Exits with 1 if a row misses its limit.

    python3 core/benchmarks/gate.py
    python3 core/benchmarks/gate.py --only shm --sizes 4 65536 --pairs 9

Both builds are compiled first (builds.py). Then frozen, new and frozen again take turns at each row (gate_rows.py); the
ratio of the frozen build to itself is the noise. A row is judged by its minimum and its median (gate_results.py). If
the noise exceeds the row's limit, the row is noisy and must be measured again; with more ranks than cores it is for
information only. All rows together need numpy, psutil and PyTorch. Those with two hosts also need root, or a kernel
that lets users create namespaces.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import SubprocessError

from builds import Build, BuildError, add_frozen_option, frozen_build, new_build
from contestants import Contestant, ContestantError, RankSlot, Recipe
from gate_results import Result, all_met, compare, summary, table_lines
from gate_rows import GROUPS, HERE, SIZES, Job, Row, chosen_jobs

STARTS = 3  # of the processes; each build is started first once, since the first one is slower with large tensors
FROZEN, NEW, AGAIN = range(3)  # positions in a trio
PAIRS = 21  # turns of each build for each row
LEAST_PAIRS = 6  # if an operation takes long
ROW_S = 20.0
TURN_S = 0.08
MOST_REPETITIONS, MOST_BATCHES = 400, 100
# Otherwise one build would use the algorithm thresholds that the other has measured and stored.
COMMON = {"FARANDOLE_TUNING": "0"}


@dataclass(frozen=True)
class Plan:
    """The layout of a row's turns, which is the same for all builds and starts."""

    repetitions: int  # in a batch
    batches: int  # in a turn
    pairs: int  # of all starts together


def plan_for(once: float, batch_s: float, pairs: int) -> Plan:
    """Choose the layout for an operation that takes `once` seconds."""
    repetitions = max(1, min(MOST_REPETITIONS, int(batch_s / once)))
    batches = max(1, min(MOST_BATCHES, int(TURN_S / (once * repetitions))))
    affordable = int(ROW_S / (STARTS * batches * repetitions * once)) // STARTS * STARTS
    return Plan(repetitions, batches, min(pairs, max(LEAST_PAIRS, affordable)))


def rotated(by: int) -> list[int]:
    """Return the positions in the trio, starting with another one."""
    return [(by + place) % STARTS for place in range(STARTS)]


def orders(start: int, pairs: int) -> list[list[int]]:
    """Return the order of turns in each pair of a start. Over all starts each build is equally often in each position.

    REQUIRES: `pairs`, of all starts together, is a multiple of STARTS.
    """
    first = start * pairs // STARTS
    return [rotated(pair) for pair in range(first, first + pairs // STARTS)]


class Measurement:
    """The turns of one row, over all starts."""

    def __init__(self, row: Row, pairs: int) -> None:
        self._row = row
        self._pairs = pairs
        self._plan: Plan | None = None
        self._turns: list[list[list[float]]] = [[], [], []]  # for each of the trio, by turn: the seconds of each batch

    def take_turns(self, trio: Sequence[Contestant], start: int) -> None:
        once = max(min(self._ask(each, 1, 2)) for each in trio)  # checks the sums, too
        plan = self._plan = self._plan or plan_for(once, self._row.batch_s, self._pairs)
        warming = int(plan.batches > 1)  # the first batch also wakes sleeping ranks, and does not count
        for order in orders(start, plan.pairs):
            for at in order:
                times = self._ask(trio[at], plan.repetitions, plan.batches + warming)
                self._turns[at].append(times[warming:])

    def result(self, oversubscribed: bool) -> Result:
        frozen, new, again = (self._turns[at] for at in (FROZEN, NEW, AGAIN))
        return Result(self._row, compare(new, frozen), compare(again, frozen), oversubscribed)

    def _ask(self, contestant: Contestant, repetitions: int, batches: int) -> list[float]:
        return contestant.measure(self._row.size_bytes, repetitions, batches, self._row.what)


@contextlib.contextmanager
def places(job: Job) -> Iterator[Sequence[RankSlot]]:
    """Create the hosts on which the ranks run, if the job needs any."""
    if not job.link:
        yield ()
        return
    from between_hosts import LINKS, slots
    from lab_namespaces import CannotMake
    from network import connected

    with contextlib.ExitStack() as ending:
        try:
            network = ending.enter_context(connected(job.ranks))
        except CannotMake as error:
            raise ContestantError(str(error)) from error
        network.become(LINKS[job.link])
        yield slots(network.hosts, 1)


@contextlib.contextmanager
def started(job: Job, trio: Sequence[Build], start: int, slots: Sequence[RankSlot]) -> Iterator[list[Contestant]]:
    """Start the processes of a job, in each start with another build first."""
    # With hosts, each has its own /dev/shm.
    home = tempfile.TemporaryDirectory(prefix="farandole-gate-", dir=None if slots else "/dev/shm")
    with home as folder, contextlib.ExitStack() as ending:
        found = {}
        for at in rotated(start):
            path = os.pathsep.join([str(trio[at].packages), str(HERE)])
            variables = {**COMMON, **job.variables, "PYTHONPATH": path}
            recipe = Recipe(f"{job.title} {at}", job.command(trio[at]), variables=variables)
            found[at] = Contestant(recipe, job.ranks, Path(folder), slots)
            ending.callback(found[at].close)
        yield [found[at] for at in range(len(trio))]


def measure(job: Job, trio: Sequence[Build], pairs: int) -> list[Result]:
    measurements = [Measurement(row, pairs) for row in job.rows]
    with places(job) as slots:
        for start in range(STARTS):
            with started(job, trio, start, slots) as contestants:
                for each in measurements:
                    each.take_turns(contestants, start)
    oversubscribed = job.ranks > len(os.sched_getaffinity(0))
    return [each.result(oversubscribed) for each in measurements]


def run(jobs: Sequence[Job], trio: Sequence[Build], pairs: int) -> tuple[list[Result], list[str]]:
    """Return the results, and why jobs failed."""
    results: list[Result] = []
    failures = []
    for job in jobs:
        began = time.monotonic()
        print(f"==> {job.title}, {len(job.rows)} rows", file=sys.stderr, end="", flush=True)
        try:
            results += measure(job, trio, pairs)
        except (ContestantError, OSError, RuntimeError, SubprocessError) as error:  # the last two: of hosts
            failures.append(f"{job.title}: {error}")
        print(f" ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
    return results, failures


def parse() -> tuple[argparse.Namespace, list[Job]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument(
        "--sizes", type=int, nargs="+", choices=SIZES, default=SIZES, metavar="BYTES", help="of the rows that have one"
    )
    parser.add_argument("--pairs", type=int, default=PAIRS, help="turns of each build for each row, a multiple of 3")
    add_frozen_option(parser)
    options = parser.parse_args()
    if options.pairs <= 0 or options.pairs % STARTS:
        parser.error(f"--pairs is {options.pairs}; it must be a positive multiple of {STARTS}")
    jobs = chosen_jobs(options.only, options.sizes)
    if missing := sorted({name for job in jobs for name in job.needs if not importlib.util.find_spec(name)}):
        parser.error(f"{sys.executable} lacks {', '.join(missing)}; use another Python or choose rows with --only")
    return options, jobs


def main() -> int:
    options, jobs = parse()
    try:
        frozen, new = frozen_build(options.frozen), new_build()
    except BuildError as error:
        sys.exit(f"gate: {error}")
    results, failures = run(jobs, [frozen, new, frozen], options.pairs)
    print("\n".join(table_lines(results)))
    print(summary(results))
    for failure in failures:
        print(f"not measured: {failure}")
    return 0 if all_met(results) and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
