"""How long ranks of an elastic job need to go on after one was killed, and what elastic mode costs without a fault.

    python3 noxfile.py -s bench -- core/benchmarks/elastic.py
    python3 noxfile.py -s bench -- core/benchmarks/elastic.py --kills 200 --output docs/benchmarks

`--torchrun N` kills as many ranks of the same model under torchrun, which starts all processes again. `--joins N` and
`--joins-between-hosts N` measure how long the ranks pause when a newcomer joins (elastic_joins.py). With 0 of a kind
the figures that the folder of --output has of it stay.

Each job has four ranks, which train 25 million parameters, commit each step, and lose a rank by SIGKILL at a random
instant of a step. The time to go on is that from the kill to the end of the next step with three ranks, less the usual
time of a step; a finished step is lost where the three repeat one that all of them had finished.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil
from between_hosts import machine
from contestants import ContestantError
from elastic_joins import HERE, RANKS, THERE, WORKER, Join, Line, joins_between_hosts, joins_on_one_host, lines_of
from elastic_joins import lines as lines_of_joins
from elastic_joins import target_results as join_results
from tables import TargetResult, end

TORCHRUN_WORKER = Path(__file__).with_name("torchrun_worker.py")
_LIMIT_S = 120.0
_STEPS = 16
_WARM_STEPS = 6  # before a kill


@dataclass(frozen=True)
class Kill:
    """One killed rank, and what the others did."""

    victim: int
    usual_step_s: float
    recovery_s: float  # less a step
    lost_steps: int
    commit_s: float
    look_s: float


Results = tuple[list[Kill], list[Kill | str], dict[str, list[Join]]]


def one_kill(draw: random.Random, folder: Path, by_torchrun: bool = False) -> Kill:
    """Start a job, kill one of its ranks, and see the rest to its end. Raises ContestantError."""
    victim = draw.randrange(RANKS)
    job = start(folder, by_torchrun)
    try:
        await_steps(job, folder, _WARM_STEPS)
        pid = pid_of(job, victim)
        time.sleep(draw.uniform(0.0, 2 * usual_step_s(lines_of(folder / "0"))))
        killed_at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        _, err = job.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise ContestantError(f"a job did not end within {_LIMIT_S:.0f} s after rank {victim} was killed") from error
    finally:
        if job.poll() is None:
            job.kill()
            job.communicate()
    if job.returncode != 0:
        raise ContestantError(
            f"a job ended with exit code {job.returncode} after rank {victim} was killed: {err[-500:]}"
        )
    return judge(victim, killed_at, {rank: lines_of(folder / str(rank)) for rank in range(RANKS) if rank != victim})


def one_by_torchrun(draw: random.Random, folder: Path) -> Kill | str:
    """The same under torchrun; why its job did not go on where it did not."""
    try:
        return one_kill(draw, folder, by_torchrun=True)
    except ContestantError as error:
        return str(error)


def judge(victim: int, killed_at: float, logs: dict[int, list[Line]]) -> Kill:
    """The figures of one kill, from the steps that the survivors have finished."""
    before = {rank: [line for line in log if line.ranks == RANKS] for rank, log in logs.items()}
    after = {rank: [line for line in log if line.ranks == RANKS - 1] for rank, log in logs.items()}
    if not all(after.values()):
        raise ContestantError(f"a rank took no step after rank {victim} was killed")
    usual = statistics.median(usual_step_s(log) for log in before.values())
    finished_by_all = min(log[-1].step for log in before.values())
    resumed_at = min(log[0].step for log in after.values())
    ended_at = max(log[0].at for log in after.values())
    good = [line for log in before.values() for line in log[1:]]
    lost = max(0, finished_by_all - (resumed_at - 1))
    commit_s, look_s = median_of(good, "commit_s"), median_of(good, "look_s")
    return Kill(victim, usual, ended_at - killed_at - usual, lost, commit_s, look_s)


def median_of(lines: Sequence[Line], what: str) -> float:
    return statistics.median(getattr(line, what) for line in lines)


def usual_step_s(log: Sequence[Line]) -> float:
    """The median time of a step."""
    return statistics.median(later.at - earlier.at for earlier, later in pairwise(log))


def start(folder: Path, by_torchrun: bool) -> subprocess.Popen[str]:
    """The launcher, whose ranks write to the folder."""
    ours = ["farandole.launch", "run", "-np", str(RANKS), "--min-np", "1", WORKER]
    theirs = ["torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", "--max-restarts=1", TORCHRUN_WORKER]
    command = [sys.executable, "-m", *(theirs if by_torchrun else ours), folder, _STEPS]
    return subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def await_steps(job: subprocess.Popen[str], folder: Path, steps: int) -> None:
    """Until each rank has finished so many steps. Raises ContestantError."""
    deadline = time.monotonic() + _LIMIT_S
    while min(len(lines_of(folder / str(rank))) for rank in range(RANKS)) < steps:
        if job.poll() is not None or time.monotonic() > deadline:
            job.kill()
            raise ContestantError(f"a job took no steps: {job.communicate()[1][-500:]}")
        time.sleep(0.01)


def pid_of(job: subprocess.Popen[str], rank: int) -> int:
    """The process of a rank."""
    for process in psutil.Process(job.pid).children(recursive=True):
        environment = process.environ()
        if str(rank) in (environment.get("FARANDOLE_RANK"), environment.get("RANK")):
            return process.pid
    raise ContestantError(f"rank {rank} has no process")


def target_results(kills: Sequence[Kill]) -> list[TargetResult]:
    """The targets."""
    recovery_ms = sorted(1e3 * kill.recovery_s for kill in kills)
    median = statistics.median(recovery_ms)
    last = recovery_ms[min(len(recovery_ms) - 1, int(0.99 * len(recovery_ms)))]
    return [
        TargetResult("from a kill to the next good step, less a step: median", median, 200, "ms"),
        TargetResult("the same, 99th percentile", last, 1_000, "ms"),
        TargetResult("elastic mode beside the commits, of a step", 100 * share_of_looks(kills), 0.5, " %"),
        TargetResult("finished steps lost", float(sum(kill.lost_steps for kill in kills)), 0, ""),
    ]


def share_of_looks(kills: Sequence[Kill]) -> float:
    """The share of a step in which ranks look whether others leave: all that elastic mode does beside the commits."""
    return statistics.median(kill.look_s for kill in kills) / statistics.median(kill.usual_step_s for kill in kills)


def write(
    folder: Path, kills: Sequence[Kill], by_torchrun: Sequence[Kill | str], joins: Mapping[str, Sequence[Join]]
) -> None:
    """elastic.md and elastic.json."""
    facts = machine()
    content: dict[str, object] = {"machine": facts, "kills": [vars(each) for each in kills]}
    content["joins"] = {where: [vars(each) for each in some] for where, some in joins.items()}
    content["torchrun"] = [each if isinstance(each, str) else vars(each) for each in by_torchrun]
    (folder / "elastic.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    rows = "\n".join(f"| {name} | {value} |" for name, value in quantiles(kills).items())
    step_ms = 1e3 * statistics.median(kill.usual_step_s for kill in kills)
    commit_ms = 1e3 * statistics.median(kill.commit_s for kill in kills)
    look_us = 1e6 * statistics.median(kill.look_s for kill in kills)
    lost = sum(kill.lost_steps for kill in kills)
    (folder / "elastic.md").write_text(
        f"""# Elastic training

`python3 noxfile.py -s bench -- core/benchmarks/elastic.py --kills {len(kills)} --torchrun {len(by_torchrun)}
--joins {len(joins[HERE])} --joins-between-hosts {len(joins[THERE])} --output docs/benchmarks`;
[how to read it](README.md#elastic).

{facts["processor"]}, {facts["cores"]} cores. {RANKS} ranks train 25 million parameters and commit each step; one is
killed by SIGKILL at a random instant, {len(kills)} times. A step takes {step_ms:.0f} ms, {commit_ms:.1f} ms of it the
commit.

| from the kill to the end of the next good step, less a step | |
|---|---:|
{rows}

Without a fault, elastic mode takes {look_us:.0f} us of a step beside the commit, {100 * share_of_looks(kills):.3f} %.
Finished steps lost: {lost}. All survivors went on in their processes.
{about_torchrun(by_torchrun)}
{lines_of_joins(joins)}""",
        encoding="utf-8",
    )


def about_torchrun(done: Sequence[Kill | str]) -> str:
    """The sentence about the same model under torchrun."""
    if not done:
        return ""
    good = [each for each in done if isinstance(each, Kill)]
    text = (
        "\n`torchrun --max-restarts 1` with DistributedDataParallel over gloo starts four new processes,\n"
        f"which read a checkpoint that rank 0 writes each step: {len(good)} of {len(done)} jobs went on"
    )
    if good:
        return f"{text}, after (median) {quantiles(good)['median']}."
    return f"{text}; the others ended in the restart, at connecting."


def quantiles(kills: Sequence[Kill]) -> dict[str, str]:
    recovery_ms = sorted(1e3 * kill.recovery_s for kill in kills)
    if not recovery_ms:
        return dict.fromkeys(_SHARES, "")
    return {name: f"{recovery_ms[int(share * (len(recovery_ms) - 1))]:.0f} ms" for name, share in _SHARES.items()}


_SHARES = {"minimum": 0.0, "median": 0.5, "90 %": 0.9, "99 %": 0.99, "maximum": 1.0}


def earlier(folder: Path | None) -> Results:
    """The figures of the last run that wrote to this folder."""
    path = folder / "elastic.json" if folder else None
    if path is None or not path.exists():
        return [], [], {HERE: [], THERE: []}
    found = json.loads(path.read_text(encoding="utf-8"))
    by_torchrun = [each if isinstance(each, str) else Kill(**each) for each in found["torchrun"]]
    joins = {where: [Join(**each) for each in found.get("joins", {}).get(where, [])] for where in (HERE, THERE)}
    return [Kill(**each) for each in found["kills"]], by_torchrun, joins


def measured(options: argparse.Namespace) -> Iterator[Results]:
    """The figures so far, after each one; those of an earlier run in place of what this one leaves out."""
    draw = random.Random(options.seed)
    kills, by_torchrun, joins = earlier(options.output)
    if options.kills:
        kills.clear()
    if options.torchrun:
        by_torchrun.clear()
    for number in range(options.kills + options.torchrun):
        with tempfile.TemporaryDirectory(prefix="farandole-bench-") as folder:
            if number < options.kills:
                kills.append(one_kill(draw, Path(folder)))
                print(f"rank {kills[-1].victim}: {1e3 * kills[-1].recovery_s:.0f} ms", file=sys.stderr)
            else:
                by_torchrun.append(one_by_torchrun(draw, Path(folder)))
        yield kills, by_torchrun, joins
    if options.joins:
        joins[HERE].clear()
    if options.joins_between_hosts:
        joins[THERE].clear()
    for where, count, measure in (
        (HERE, options.joins, lambda count: joins_on_one_host(count, draw)),
        (THERE, options.joins_between_hosts, joins_between_hosts),
    ):
        for join in measure(count) if count else ():
            joins[where].append(join)
            print(f"a newcomer {where}: {1e3 * join.pause_s:.0f} ms", file=sys.stderr)
            yield kills, by_torchrun, joins


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--torchrun", type=int, default=0, help="kills of a rank of torchrun's, for comparison")
    parser.add_argument("--joins", type=int, default=5, help="newcomers on one host")
    parser.add_argument("--joins-between-hosts", type=int, default=0, help="newcomers on another host, as root")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="folder for elastic.md and elastic.json")
    options = parser.parse_args()
    results: list[TargetResult] = []
    for kills, by_torchrun, joins in measured(options):
        results = [*(target_results(kills) if kills else []), *join_results(joins)]
        if options.output and kills:
            write(options.output, kills, by_torchrun, joins)
    return end(results)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ContestantError as error:
        sys.exit(f"benchmark: {error}")
