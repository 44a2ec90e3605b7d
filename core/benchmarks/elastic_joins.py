"""How long the ranks of an elastic job pause when a newcomer joins, on one host and between two at 1 Gbit/s.

Of a job of four ranks one is killed, again and again. The launcher starts another one in its place, which imports and
builds its model while the three train on, and then joins. The pause is the longest time between two finished steps of
one of the three around the join, less the usual time of a step of four ranks.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from contestants import ContestantError
from tables import TargetResult

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

WORKER = Path(__file__).with_name("elastic_worker.py")
RANKS = 4
_LIMIT_S = 120.0
_STEPS = 8  # between a join and the next kill
_MOST_STEPS = 400  # for each join, so that a job ends by itself where this process is killed
RATE, RATE_BITS = "1gbit", 1e9
HERE, THERE = "on one host", "between hosts"
LINK_BYTES = 66_666_667  # of the 100 MB of the worker's model, that go through the link


@dataclass(frozen=True)
class Line:
    """A finished step of a rank."""

    ranks: int
    step: int
    at: float
    commit_s: float
    look_s: float


@dataclass(frozen=True)
class Join:
    """One newcomer."""

    usual_step_s: float  # of four ranks
    pause_s: float
    import_s: float  # from the begin of the newcomer's program until it can join
    steps_meanwhile: int  # of the others


@dataclass
class Job:
    """A running job, and the numbers of the processes that are in it."""

    process: subprocess.Popen[str]
    folder: Path
    members: list[int] = field(default_factory=lambda: list(range(RANKS)))


def lines_of(path: Path) -> list[Line]:
    """The steps that a rank has finished so far."""
    if not path.exists():
        return []
    complete = path.read_text(encoding="ascii").splitlines(keepends=True)
    words = [line.split() for line in complete if line.endswith("\n")]
    return [Line(int(ranks), int(step), *map(float, times)) for ranks, step, *times in words]


def joins_on_one_host(count: int, draw: random.Random) -> Iterator[Join]:
    """Any of the four is replaced, again and again. Raises ContestantError."""
    with (
        tempfile.TemporaryDirectory(prefix="farandole-bench-") as folder,
        _running(subprocess.Popen, [], ["-np", str(RANKS)], Path(folder), count) as job,
    ):
        for _ in range(count):
            yield _one_join(job, draw.choice(job.members))


def joins_between_hosts(count: int) -> Iterator[Join]:
    """Two ranks on each: two of three that send to the newcomer are on the other side. Raises ContestantError."""
    from lab import Lab

    # Not in /dev/shm, of which each host has its own.
    with tempfile.TemporaryDirectory(prefix="farandole-bench-") as folder:
        lab = Lab(Path(folder))
        try:
            one, other = lab.hosts(2)
            for host in (one, other):
                host.shape(RATE)
            inside = ["env", f"FARANDOLE_SSH={' '.join(lab.ssh_command)}"]
            places = ["-H", f"{one.name}:{RANKS // 2},{other.name}:{RANKS // 2}"]
            with _running(one.start, inside, places, Path(folder), count) as job:
                for _ in range(count):
                    yield _one_join(job, job.members[-1])
        finally:
            lab.close()


@contextlib.contextmanager
def _running(
    start: Callable[..., Any], inside: Sequence[str], places: Sequence[str], folder: Path, count: int
) -> Iterator[Job]:
    limits = ["--min-np", "2", "--max-np", str(RANKS), "--blacklist-cooldown-range", "0.5", "0.5"]
    command = [*inside, sys.executable, "-m", "farandole.launch", "run", *places, *limits]
    command += [str(WORKER), str(folder), str(_MOST_STEPS * count)]
    with open(folder / "said", "w", encoding="utf-8") as said:
        process = start(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, text=True)
    try:
        yield Job(process, folder)
    finally:
        process.terminate()
        try:
            process.wait(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _one_join(job: Job, victim: int) -> Join:
    """Once all have taken steps, this one is killed, and replaced by the next number."""
    _await(job, job.members, RANKS, _STEPS)
    (job.folder / f"{victim}.dies").touch()
    rest, newcomer = [each for each in job.members if each != victim], max(job.members) + 1
    lines_before = {each: len(lines_of(job.folder / str(each))) for each in rest}
    job.members = [*rest, newcomer]
    _await(job, [newcomer], RANKS, _STEPS)
    logs = [lines_of(job.folder / str(each))[lines_before[each] :] for each in rest]
    began, ready = map(float, (job.folder / f"{newcomer}.ready").read_text(encoding="ascii").split())
    return judge(logs, began, ready)


def judge(logs: Sequence[Sequence[Line]], began: float, ready: float) -> Join:
    """The figures of one join, from the steps that the three finished since the loss.

    began, ready: when the newcomer's program began, and could join.
    """
    usual, gaps = [], []
    for log in logs:
        after = next((i for i, line in enumerate(log) if i and log[i - 1].ranks < line.ranks == RANKS), 0)
        if not after:
            raise ContestantError("a rank took no step of three ranks before a newcomer joined")
        gaps.append(log[after].at - log[after - 1].at)
        usual.append(statistics.median(later.at - earlier.at for earlier, later in pairwise(log[after:])))
    usual_s = statistics.median(usual)
    meanwhile = min(sum(began <= line.at <= ready for line in log) for log in logs)
    return Join(usual_s, max(gaps) - usual_s, ready - began, meanwhile)


def target_results(joins: Mapping[str, Sequence[Join]]) -> list[TargetResult]:
    """The targets: a step or 250 ms, the greater; between hosts the streaming at 70 % of the rate on top."""
    found = []
    for where, some in joins.items():
        if some:
            streamed_s = LINK_BYTES * 8 / RATE_BITS / 0.7 if where == THERE else 0.0
            shares = [100 * each.pause_s / (max(each.usual_step_s, 0.25) + streamed_s) for each in some]
            allowed = "a step or 250 ms" + (" and the streaming" if streamed_s else "")
            found.append(TargetResult(f"pause for a newcomer {where}, of {allowed}: worst", max(shares), 100, " %"))
    return found


def lines(joins: Mapping[str, Sequence[Join]]) -> str:
    """The section of elastic.md about newcomers; "" without any."""
    if not any(joins.values()):
        return ""
    rows = [
        f"| {where} | {len(some)} | {_ms(statistics.median(each.pause_s for each in some))} | "
        f"{_ms(max(each.pause_s for each in some))} | {_ms(statistics.median(each.usual_step_s for each in some))} | "
        f"{statistics.median(each.import_s for each in some):.1f} s | {min(each.steps_meanwhile for each in some)} |"
        for where, some in joins.items()
        if some
    ]
    return f"""
## Newcomers

A rank is killed, and a newcomer takes its place. The pause is the longest time between two finished steps of
one of the three others around the join, less a step of four. Two hosts have two ranks each, and two of the three that
send to the newcomer are on the other one: {LINK_BYTES / 1e6:.0f} MB come through a link of 1 Gbit/s, which takes
{_ms(LINK_BYTES * 8 / RATE_BITS)} at least.

| newcomers | joins | median pause | worst | a step | a newcomer's start | least steps of the others meanwhile |
|---|---:|---:|---:|---:|---:|---:|
{chr(10).join(rows)}
"""


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms"


def _await(job: Job, members: Sequence[int], ranks: int, steps: int) -> None:
    """Until each of them has finished so many steps with so many ranks. Raises ContestantError."""
    deadline = time.monotonic() + _LIMIT_S
    while min(_steps_with(job.folder / str(each), ranks) for each in members) < steps:
        if job.process.poll() is not None or time.monotonic() > deadline:
            raise ContestantError(f"a job took no steps: {(job.folder / 'said').read_text(errors='replace')[-500:]}")
        time.sleep(0.05)


def _steps_with(path: Path, ranks: int) -> int:
    """The steps since the last change of the ranks; 0 where that was to another number."""
    return sum(1 for _ in itertools.takewhile(lambda line: line.ranks == ranks, reversed(lines_of(path))))
