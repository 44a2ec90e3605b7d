"""Jobs whose ranks are killed at random instants; a program of its own, since a job must cost milliseconds.

    this process (warm: everything imported, farandole never initialized)
      +-- fork: rank 0, rank 1, ...    init, then operations for ever; a survivor reports what it was told, and ends
                  +-- a child of the victim, alive and with its sockets open

Usage: kills.py JOBS SEED [FIRST]. Prints one line of JSON per job (see Outcome).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import random
import re
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import farandole
import farandole.numpy as fnp
import numpy as np
from farandole._runtime.native import core
from farandole.testing import rank_environments

KINDS = ("allreduce", "async", "grouped", "allgather", "broadcast")
CHILDREN = ("none", "forked", "cloned")
LEAST_BYTES, MOST_BYTES = 300, 64 << 20
_PATIENCE_S = 20.0


@dataclass
class Job:
    number: int
    ranks: int
    victim: int
    kind: str
    size_bytes: int
    mode: str  # shared, tcp, mixed
    child: str  # "cloned": past every handler of fork, so that it holds all descriptors
    delay_s: float


@dataclass
class Outcome:
    job: Any  # of the program's own kind
    latencies_ms: list[float] = field(default_factory=list)  # from the kill to the exception, one per survivor
    problems: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)  # start_kills.py: where in a survivor's start the death was heard


def draw(seed: int, number: int) -> Job:
    dice = random.Random(f"{seed}.{number}")
    ranks = dice.choice([2, 2, 3, 4])
    size = int(LEAST_BYTES * (MOST_BYTES / LEAST_BYTES) ** dice.random())
    mode = dice.choice(["shared", "tcp"] if ranks == 2 else ["shared", "tcp", "mixed"])
    victim, kind, child = dice.randrange(ranks), dice.choice(KINDS), dice.choice(CHILDREN)
    # A rank without shared memory is watched by its connections alone; a child that keeps them open hides its death.
    if child == "cloned" and is_alone(mode, victim):
        child = "forked"
    return Job(number, ranks, victim, kind, size, mode, child, dice.random() * 0.05)


def is_alone(mode: str, rank: int) -> bool:
    """Returns whether this rank shares no memory."""
    return mode == "tcp" or (mode == "mixed" and rank == 0)


# ---- in a rank


def be_rank(job: Job, rank: int, environment: dict[str, str], report: int) -> None:
    enter_session(environment, alone=is_alone(job.mode, rank))
    fnp.init()
    if rank == job.victim:
        have_child(job.child)
    array = np.ones(max(1, job.size_bytes // 4), np.float32)
    fnp.barrier()
    os.write(report, b"ready\n")
    told: dict[str, Any] = {}
    try:
        while True:
            perform(job.kind, array)
    except farandole.FarandoleError as error:
        told = {"at": time.monotonic(), "type": type(error).__name__, "text": str(error)}
    try:
        fnp.barrier()
    except farandole.RecoverableError:
        told["still"] = True
    os.write(report, json.dumps(told).encode() + b"\n")
    farandole.shutdown()


def enter_session(environment: dict[str, str], *, alone: bool) -> None:
    """Be a rank with these settings, in a session of its own; it dies with the judge."""
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    os.environ.update(environment)
    os.environ["FARANDOLE_ARENAS"] = "0" if alone else "1"


def perform(kind: str, array: np.ndarray) -> None:
    if kind == "allreduce":
        fnp.allreduce_(array, op=fnp.Max)
    elif kind == "async":
        parts = np.array_split(array, 5)
        handles = [fnp.allreduce_async_(part, op=fnp.Max, name=f"part.{i}") for i, part in enumerate(parts)]
        for handle in handles:
            fnp.synchronize(handle)
    elif kind == "grouped":
        fnp.grouped_allreduce_(np.array_split(array, 3), op=fnp.Max, name="parts")
    elif kind == "allgather":
        fnp.allgather(array[: max(1, array.size // fnp.size())], name="rows")
    else:
        fnp.broadcast_(array, 0, name="weights")


def have_child(how: str) -> None:
    """Start a process that outlives this one, as a DataLoader's workers do."""
    if how == "none":
        return
    if how == "forked":
        child = os.fork()
    else:
        number = {"x86_64": 56, "aarch64": 220}[platform.machine()]  # clone
        child = ctypes.PyDLL(None).syscall(number, int(signal.SIGCHLD), 0, 0, 0, 0)
    if child == 0:
        signal.pause()
        os._exit(0)


# ---- the judge


def run_job(job: Job) -> Outcome:
    outcome = Outcome(job)
    settings = {"FARANDOLE_TIMEOUT": "30", "FARANDOLE_START_TIMEOUT": "30"}
    with (
        rank_environments(job.ranks, settings) as environments,
        forked(outcome, be_rank, environments) as (pids, reports),
    ):
        if await_ready(outcome, reports):
            time.sleep(job.delay_s)
            killed = time.monotonic()
            os.kill(pids[job.victim], signal.SIGKILL)
            for rank in range(job.ranks):
                if rank != job.victim:
                    judge_survivor(outcome, rank, pids[rank], reports[rank], pids[job.victim], killed)
    return outcome


@contextlib.contextmanager
def forked(
    outcome: Outcome, body: Callable[[Any, int, dict[str, str], int], None], environments: list[dict[str, str]]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Ranks of the outcome's job: their pids, and where to read their reports. Ended with all that they leave."""
    store = environments[0]["FARANDOLE_STORE"].removeprefix("unix:")
    started = [start_rank(outcome.job, body, rank, environment) for rank, environment in enumerate(environments)]
    pids, reports = zip(*started, strict=True)
    try:
        yield pids, reports
    finally:
        for pid, report in zip(pids, reports, strict=True):
            end_session(pid)
            os.close(report)
    outcome.problems += left_over(pids, store)


def start_rank(
    job: Any, body: Callable[[Any, int, dict[str, str], int], None], rank: int, environment: dict[str, str]
) -> tuple[int, int]:
    """(pid, descriptor to read its report from)."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            body(job, rank, environment, writing)
        except BaseException as error:
            os.write(writing, json.dumps({"type": type(error).__name__, "text": str(error)}).encode() + b"\n")
            os._exit(1)
        os._exit(0)
    os.close(writing)
    return pid, reading


def read_line(report: int) -> bytes:
    """The next line of a report; b"" where none comes in time."""
    line = b""
    deadline = time.monotonic() + _PATIENCE_S
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([report], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(report, 1) if ready else b""
        if not piece:
            return b""
        line += piece
    return line


def await_ready(outcome: Outcome, reports: tuple[int, ...]) -> bool:
    lines = [read_line(report) for report in reports]
    for rank, line in enumerate(lines):
        if line != b"ready\n":
            outcome.problems.append(f"rank {rank} did not get ready: {line!r}")
    return not outcome.problems


def judge_survivor(outcome: Outcome, rank: int, pid: int, report: int, victim_pid: int, killed: float) -> None:
    told = hear(outcome, rank, report)
    if told is None:
        return
    judge_loss(outcome, rank, told, victim_pid)
    outcome.latencies_ms.append(round((told.get("at", 0.0) - killed) * 1000, 2))
    await_end(outcome, rank, pid)


def judge_loss(outcome: Outcome, rank: int, told: dict[str, Any], victim_pid: int) -> None:
    """Whether a rank was told that the victim is lost, with all that one needs to look at it."""
    text = told.get("text", "")
    if told.get("type") != "PeerLostError" or not told.get("still"):
        outcome.problems.append(f"rank {rank} was told {told}")
    for word in (f"rank {outcome.job.victim}", f"pid {victim_pid}", socket.gethostname()):
        if word not in text:
            outcome.problems.append(f"rank {rank}: {word!r} is not in {text!r}")


def hear(outcome: Outcome, rank: int, report: int) -> dict[str, Any] | None:
    """The report of a rank; its absence is a problem."""
    line = read_line(report)
    if not line:
        outcome.problems.append(f"rank {rank} hangs or died without a word")
    return json.loads(line) if line else None


def await_end(outcome: Outcome, rank: int, pid: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline:
            outcome.problems.append(f"rank {rank} does not end")
            return
        time.sleep(0.001)


def end_session(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def left_over(pids: tuple[int, ...], store: str) -> list[str]:
    """The leftovers of the job: processes, socket names, files."""
    found = []
    deadline = time.monotonic() + _PATIENCE_S
    while (members := session_members(pids)) and time.monotonic() < deadline:
        reap()
        time.sleep(0.001)  # killed, but not yet gone
    if members:
        found.append(f"processes are left: {members}")
    names = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if store in line]
    if names:
        found.append(f"sockets are left: {names}")
    folders = {"/dev/shm", "/tmp", tempfile.gettempdir()}
    files = [str(path) for folder in folders for path in Path(folder).iterdir() if owned(path, pids)]
    if files:
        found.append(f"files are left: {files}")
    return found


def reap() -> None:
    """Take the exit codes of the victims' children, which have become ours."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def owned(path: Path, pids: tuple[int, ...]) -> bool:
    numbers = re.findall(r"\d+", path.name)
    return any(str(pid) in numbers for pid in pids) and "farandole" in path.name.lower()


def session_members(pids: tuple[int, ...]) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.getsid(int(entry.name)) in pids:
                found.append(int(entry.name))
        except ProcessLookupError:
            continue
    return found


def main(run: Callable[[int, int], Outcome]) -> None:
    jobs, seed = int(sys.argv[1]), int(sys.argv[2])
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    core.is_initialized()  # loads the compiled core, once for all ranks
    before = set(os.listdir("/proc/self/fd"))
    for number in range(first, first + jobs):
        print(json.dumps(asdict(run(seed, number))), flush=True)
    after = set(os.listdir("/proc/self/fd"))
    if len(after) > len(before):
        sys.exit(f"descriptors are left: {sorted(after - before)}")


if __name__ == "__main__":
    main(lambda seed, number: run_job(draw(seed, number)))
