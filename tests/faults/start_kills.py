"""Jobs of which a rank is killed at a random instant of init(); as in kills.py, whose forked ranks and judge these are.

Usage: start_kills.py JOBS SEED [FIRST]. Prints one line of JSON per job (see kills.Outcome).
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import statistics
import time
from dataclasses import dataclass
from typing import Any

import farandole
import farandole.numpy as fnp
import kills
from farandole.testing import rank_environments
from kills import Outcome

START_TIMEOUT_S = 2.0
_FORKING_S = 0.03
_LATEST_BEGIN_S = 0.003
_SLACK_S = 1.5  # the machine may be busy


@dataclass
class Job:
    number: int
    ranks: int
    victim: int
    mode: str  # shared, tcp, mixed
    child: str
    begin_s: list[float]  # by rank: when it calls init, once all have been forked
    kill_at: float  # how far init is when the victim dies; 1: it takes as long as usual
    began: float = 0.0  # the time of the clock at which all have been forked


def draw(seed: int, number: int) -> Job:
    dice = random.Random(f"start.{seed}.{number}")
    ranks = dice.choice([2, 3, 4, 5])
    mode = dice.choice(["shared", "tcp"] if ranks == 2 else ["shared", "tcp", "mixed"])
    victim, child = dice.randrange(ranks), dice.choice(["none", "forked"])
    begin_s = [dice.random() * _LATEST_BEGIN_S for _ in range(ranks)]
    return Job(number, ranks, victim, mode, child, begin_s, kill_at=1.5 * dice.random())


def be_rank(job: Job, rank: int, environment: dict[str, str], report: int) -> None:
    kills.enter_session(environment, alone=kills.is_alone(job.mode, rank))
    if rank == job.victim:
        kills.have_child(job.child)
    began, told, started = wait_until(job.began + job.begin_s[rank]), {}, False
    try:
        fnp.init()
        started = True
        while True:
            fnp.barrier()
    except farandole.FarandoleError as error:
        now = time.monotonic()
        told = {"at": now, "after": now - began, "started": started, "type": type(error).__name__, "text": str(error)}
    os.write(report, json.dumps(told).encode() + b"\n")
    farandole.shutdown()


def wait_until(moment: float) -> float:
    time.sleep(max(0.0, moment - time.monotonic()))
    return time.monotonic()


@functools.cache
def usual_init_s() -> float:
    """How long init takes here and now: 3 ms on a machine with nothing else to do, 200 ms on a busy one."""
    job = Job(0, ranks=3, victim=-1, mode="shared", child="none", begin_s=[], kill_at=0.0)
    return statistics.median(seconds for _ in range(5) for seconds in init_times(job))


def init_times(job: Job) -> list[float]:
    outcome = Outcome(job)
    with (
        rank_environments(job.ranks, {}) as environments,
        kills.forked(outcome, report_init_time, environments) as (_, reports),
    ):
        return [json.loads(kills.read_line(report))["seconds"] for report in reports]


def report_init_time(job: Job, rank: int, environment: dict[str, str], report: int) -> None:
    kills.enter_session(environment, alone=kills.is_alone(job.mode, rank))
    began = time.monotonic()
    fnp.init()
    os.write(report, json.dumps({"seconds": time.monotonic() - began}).encode() + b"\n")
    farandole.shutdown()


def run_job(job: Job) -> Outcome:
    outcome = Outcome(job)
    kill_s = job.begin_s[job.victim] + job.kill_at * usual_init_s()
    job.began = time.monotonic() + _FORKING_S
    settings = {"FARANDOLE_TIMEOUT": "30", "FARANDOLE_START_TIMEOUT": str(START_TIMEOUT_S)}
    with (
        rank_environments(job.ranks, settings) as environments,
        kills.forked(outcome, be_rank, environments) as (pids, reports),
    ):
        killed = wait_until(job.began + kill_s)
        os.kill(pids[job.victim], signal.SIGKILL)
        for rank in range(job.ranks):
            if rank != job.victim:
                judge_survivor(outcome, rank, pids[rank], reports[rank], killed)
    return outcome


def judge_survivor(outcome: Outcome, rank: int, pid: int, report: int, killed: float) -> None:
    told = kills.hear(outcome, rank, report)
    if told is None:
        return
    outcome.problems += [f"rank {rank}: {problem} in {told}" for problem in problems_of(told, outcome.job, killed)]
    outcome.places.append("after" if told["started"] else "within" if told["type"] == "PeerLostError" else "before")
    if told["type"] == "PeerLostError":
        outcome.latencies_ms.append(round((told["at"] - killed) * 1000, 2))
    kills.await_end(outcome, rank, pid)


def problems_of(told: dict[str, Any], job: Job, killed: float) -> list[str]:
    """A rank that is known to be there is lost at once; one that had not come yet is missed at the deadline."""
    found = []
    text = told.get("text", "")
    too_late = "for rank 0: no connection" in text  # rank 0 had heard of the death and was gone
    if f"rank {job.victim}" not in text and not too_late:
        found.append(f"no word of rank {job.victim}")
    if told.get("type") == "PeerLostError":
        if told["at"] - killed > _SLACK_S:
            found.append("late")
    elif told.get("type") != "DeadlineError" or told["started"]:
        found.append("another error")
    elif told["after"] > START_TIMEOUT_S + _SLACK_S:
        found.append("long after the deadline")
    return found


if __name__ == "__main__":
    kills.main(lambda seed, number: run_job(draw(seed, number)))
