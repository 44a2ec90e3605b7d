"""Jobs whose names change shape all the time, so that their cache entries are evicted while ranks join, leave or die.

The ranks follow one random script over overlapping process sets, each with its own order of what is in flight. Every
sum is checked; where one rank's shape differs, every member must be refused. Forked ranks and judge are those of
kills.py.

Usage: evictions.py JOBS SEED [FIRST]. Prints one line of JSON per job (see kills.Outcome).
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import farandole
import farandole.numpy as fnp
import kills
import numpy as np
from farandole.testing import rank_environments
from kills import Outcome

ENDS = ("none", "join", "leave", "death")
NAMES = 5
LENGTHS = (1, 3, 100, 600, 3000, 20_000)  # float32: one phase, two phases, and through the log
MANY_NAMES = 4000  # more than have cache entries at a time
STEPS = 40
FOR_EVER = 1 << 30


@dataclass
class Job:
    number: int
    ranks: int
    sets: list[list[int]]  # the world first
    mode: str  # shared, tcp, mixed
    end: str
    last_steps: list[int]  # by rank: how many steps it takes before it joins, leaves or ends
    victim: int
    delay_s: float
    many: bool  # whether the first step is one of very many names


@dataclass
class Use:
    number: int
    members: int  # an index of Job.sets
    name: str | None  # None: called without a name, in the same order by all
    length: int
    odd: int  # a rank whose length is another; -1: none


def draw(seed: int, number: int) -> Job:
    dice = random.Random(f"evictions.{seed}.{number}")
    ranks = dice.choice([2, 2, 3, 4, 6, 8])
    world = list(range(ranks))
    sets = [world]
    while ranks > 2 and len(sets) < 3:
        chosen = sorted(dice.sample(world, dice.randrange(2, ranks)))
        if chosen not in sets:
            sets.append(chosen)
    mode = dice.choice(["shared", "tcp"] if ranks == 2 else ["shared", "tcp", "mixed"])
    end, victim = dice.choice(ENDS), dice.randrange(ranks)
    last_steps = [STEPS if end == "none" else FOR_EVER] * ranks
    if end == "join":
        last_steps = [dice.randrange(STEPS) for _ in world]
    elif end == "leave":
        last_steps[victim] = dice.randrange(STEPS)
    many = ranks < 4 and dice.random() < 0.05
    return Job(number, ranks, sets, mode, end, last_steps, victim, dice.random() * 0.1, many)


def script(job: Job) -> Iterator[list[Use]]:
    """The steps of the job, the same for all ranks: the uses of a step are in flight together."""
    dice = random.Random(f"script.{job.number}")
    numbers = itertools.count()
    if job.many:
        for _ in range(2):  # a name has a cache entry from its second use on
            yield [Use(next(numbers), 0, f"many.{i}", 1, -1) for i in range(MANY_NAMES)]
    for step in itertools.count(2 if job.many else 0):
        uses = []
        for name in dice.sample(range(NAMES), dice.randrange(1, NAMES + 1)):
            members = dice.randrange(len(job.sets))
            active = [rank for rank in job.sets[members] if takes_part(job, rank, step)]
            odd = dice.choice(active) if len(active) > 1 and dice.random() < 0.05 else -1
            uses.append(Use(next(numbers), members, f"name.{name}", dice.choice(LENGTHS), odd))
        if dice.random() < 0.3:
            uses = [Use(next(numbers), dice.randrange(len(job.sets)), None, dice.choice(LENGTHS), -1)]
        yield uses


def value(use: Use, rank: int) -> float:
    return (rank + 1) * (use.number % 7 + 1)


# ---- in a rank


def be_rank(job: Job, rank: int, environment: dict[str, str], report: int) -> None:
    kills.enter_session(environment, alone=kills.is_alone(job.mode, rank))
    fnp.init()
    sets = [None, *(fnp.add_process_set(members) for members in job.sets[1:])]
    fnp.barrier()
    os.write(report, b"ready\n")
    told: dict[str, Any] = {"problems": [], "done": []}
    try:
        follow_script(job, rank, sets, told)
        if job.end == "join":
            told["last"] = fnp.join()
        elif job.end == "none":
            fnp.barrier()  # a rank that shuts down ends the job for all
    except farandole.RecoverableError as error:
        told |= {"at": time.monotonic(), "type": type(error).__name__, "text": str(error)}
        told["still"] = is_refused()
    os.write(report, json.dumps(told).encode() + b"\n")
    farandole.shutdown()


def is_refused() -> bool:
    """Whether the job is over for this rank's next call, too."""
    try:
        fnp.barrier()
    except farandole.RecoverableError:
        return True
    return False


def follow_script(job: Job, rank: int, sets: list[Any], told: dict[str, Any]) -> None:
    """Take this rank's steps; told gets the problems, and the uses of the victim's sets that have completed."""
    order = random.Random(rank)
    for step, uses in enumerate(script(job)):
        if not takes_part(job, rank, step):
            return
        mine = [use for use in uses if rank in job.sets[use.members]]
        order.shuffle(mine)
        in_flight: list[tuple[Use, np.ndarray, Any]] = []
        lost: farandole.RecoverableError | None = None
        try:
            for use in mine:
                in_flight.append((use, *submit(use, rank, sets[use.members])))
        except farandole.RecoverableError as error:
            lost = error
        order.shuffle(in_flight)
        for use, array, handle in in_flight:
            expected = sum(value(use, each) for each in job.sets[use.members] if takes_part(job, each, step))
            try:
                told["problems"] += check(use, rank, array, handle, expected)
                if job.victim in job.sets[use.members]:
                    told["done"].append(use.number)
            except farandole.RecoverableError as error:
                lost = error
        if lost is not None:
            raise lost


def takes_part(job: Job, rank: int, step: int) -> bool:
    return step < job.last_steps[rank]


def submit(use: Use, rank: int, process_set: Any) -> tuple[np.ndarray, Any]:
    array = np.full(use.length + (rank == use.odd), value(use, rank), np.float32)
    if use.name is None:
        fnp.allreduce_(array, op=fnp.Sum, process_set=process_set)
        return array, None
    return array, fnp.allreduce_async_(array, op=fnp.Sum, name=use.name, process_set=process_set)


def check(use: Use, rank: int, array: np.ndarray, handle: Any, expected: float) -> list[str]:
    """Wait for a use; what is wrong with its end."""
    refused = False
    try:
        if handle is not None:
            fnp.synchronize(handle)
    except farandole.MismatchError:
        refused = True
    if refused != (use.odd >= 0):
        return [f"rank {rank}, {use}: " + ("refused" if refused else "completed, though one member's shape differs")]
    if not refused and not np.all(array == expected):
        return [f"rank {rank}, {use}: {array[:3]} instead of {expected}"]
    return []


# ---- the judge


def run_job(job: Job) -> Outcome:
    outcome = Outcome(job)
    settings = {"FARANDOLE_TIMEOUT": "30", "FARANDOLE_START_TIMEOUT": "30"}
    with (
        rank_environments(job.ranks, settings) as environments,
        kills.forked(outcome, be_rank, environments) as (pids, reports),
    ):
        if not kills.await_ready(outcome, reports):
            return outcome
        if job.end == "death":
            time.sleep(job.delay_s)
            os.kill(pids[job.victim], signal.SIGKILL)
        for rank in range(job.ranks):
            if rank != job.victim or job.end != "death":
                judge_rank(outcome, rank, pids, reports[rank])
    return outcome


def judge_rank(outcome: Outcome, rank: int, pids: tuple[int, ...], report: int) -> None:
    job = outcome.job
    told = kills.hear(outcome, rank, report)
    if told is None:
        return
    outcome.problems += told.get("problems", [])[:3]
    if job.end in ("death", "leave") and rank != job.victim:
        kills.judge_loss(outcome, rank, told, pids[job.victim])
    elif "type" in told:
        outcome.problems.append(f"rank {rank} was told {told}")
    if job.end == "leave":
        judge_completion(outcome, rank, set(told.get("done", [])))
    kills.await_end(outcome, rank, pids[rank])


def judge_completion(outcome: Outcome, rank: int, done: set[int]) -> None:
    """What the rank that left has completed before, each other member must have completed."""
    job = outcome.job
    steps = itertools.islice(script(job), job.last_steps[job.victim])
    due = {use.number for uses in steps for use in uses if {rank, job.victim} <= set(job.sets[use.members])}
    if not due <= done:
        outcome.problems.append(f"rank {rank} has not completed uses {sorted(due - done)[:5]}")


if __name__ == "__main__":
    kills.main(lambda seed, number: run_job(draw(seed, number)))
