"""The rows of gate.py: what is measured, with which program, and how much slower the new build may be."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from builds import ROOT, Build
from turns import readable

HERE = Path(__file__).resolve().parent
KIB, MIB = 1 << 10, 1 << 20
SIZES = (4, 64, 512, *(KIB << power for power in range(7)), 256 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
PYTHON_SIZES = (4, 64 * KIB, 16 * MIB)
HOST_SIZES = (4, 64 * KIB, 64 * MIB)
GROUPS = ("shm", "tcp", "python", "hosts", "step")
SMALL_LIMIT, MIDDLE_LIMIT, USUAL_LIMIT = 1.10, 1.35, 1.05  # new over frozen
SMALL_BYTES, MIDDLE_BYTES = 512, 32 * KIB
NUMPY_WORKER, C10D_WORKER = "core/benchmarks/face_worker.py", "core/benchmarks/c10d_worker.py"
STEP_WORKER = "plugins/torch/benchmarks/step_worker.py"
BATCH_S = 0.0004  # short enough that some batches are undisturbed
LIMITED_BATCH_S = 0.15  # after a pause tbf lets a burst of 256 KB pass, which is under 2 percent of such a batch
OVER_TCP = {"FARANDOLE_ARENAS": "0"}
# Otherwise malloc returns memory to the system in some steps only, see docs/design/training-steps.md.
KEEPS_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "17179869184", "MALLOC_TRIM_THRESHOLD_": "17179869184"}


@dataclass(frozen=True)
class Row:
    """One operation, as a worker is asked to run it."""

    title: str
    limit: float
    what: str
    size_bytes: int = 0  # 0: the row has no size
    batch_s: float = BATCH_S  # target duration of a batch


@dataclass(frozen=True)
class Job:
    """Rows measured by the same processes."""

    group: str
    title: str
    worker: tuple[str, ...]  # a program of the build, or a Python program with its arguments
    rows: tuple[Row, ...]
    ranks: int = 2
    variables: dict[str, str] = field(default_factory=dict)
    link: str = ""  # if set, each rank has its own host, connected by this one of between_hosts.LINKS
    needs: tuple[str, ...] = ()  # packages of this interpreter

    def command(self, build: Build) -> tuple[str, ...]:
        program, *arguments = self.worker
        if program.endswith(".py"):
            return (sys.executable, str(ROOT / program), *arguments)
        return (str(build.programs / program), *arguments)


def shared_memory_limit(size_bytes: int) -> float:
    if size_bytes <= SMALL_BYTES:
        return SMALL_LIMIT
    return MIDDLE_LIMIT if size_bytes <= MIDDLE_BYTES else USUAL_LIMIT


def usual_limit(_size_bytes: int) -> float:
    return USUAL_LIMIT


def sized_rows(title: str, what: str, sizes: Sequence[int], limit: Callable[[int], float]) -> tuple[Row, ...]:
    return tuple(Row(f"{title}, {readable(size)}", limit(size), what, size) for size in sizes)


def all_jobs() -> Iterator[Job]:
    """Yield all jobs in the order of measurement."""
    for ranks in (2, 4):
        yield c_job("shm", f"shared memory, {ranks} ranks", SIZES, ranks=ranks)
    for ranks in (2, 4):
        yield c_job("tcp", f"TCP, {ranks} ranks", SIZES, ranks=ranks, variables=OVER_TCP)
    yield from python_jobs()
    yield from host_jobs()
    ways = {"optimizer": "DistributedOptimizer", "ddp": "DistributedDataParallel"}
    rows = tuple(Row(f"PyTorch's step, {title}", USUAL_LIMIT, way) for way, title in ways.items())
    yield Job("step", "PyTorch's step", (STEP_WORKER,), rows, variables=KEEPS_MEMORY, needs=("torch", "tqdm"))


def c_job(group: str, title: str, sizes: Sequence[int], ranks: int = 2, variables: dict[str, str] | None = None) -> Job:
    """Blocking allreduces through farandole.h."""
    rows = sized_rows(title, "allreduce", sizes, shared_memory_limit if group == "shm" else usual_limit)
    return Job(group, title, ("frd_worker",), rows, ranks, variables or {})


def python_jobs() -> Iterator[Job]:
    for way, variables in (("shared memory", {}), ("TCP", OVER_TCP)):
        title = f"Python, named call, {way}"
        rows = sized_rows(title, "named", PYTHON_SIZES, usual_limit if variables else shared_memory_limit)
        yield Job("python", title, (NUMPY_WORKER,), rows, variables=variables, needs=("numpy",))
        title = f"Python, c10d call, {way}"
        rows = sized_rows(title, "allreduce", PYTHON_SIZES, usual_limit)
        yield Job("python", title, (C10D_WORKER, "farandole"), rows, variables=variables, needs=("torch",))


def host_jobs() -> Iterator[Job]:
    """Two hosts with one rank each. psutil is needed for the hosts' processes."""
    unlimited = replace(c_job("hosts", "two hosts, no limit", HOST_SIZES), link="unshaped", needs=("psutil",))
    limited = replace(c_job("hosts", "two hosts, 1 Gbit/s", HOST_SIZES), link="gigabit", needs=("psutil",))
    long = [replace(row, batch_s=LIMITED_BATCH_S) if row.size_bytes > SMALL_BYTES else row for row in limited.rows]
    yield from (replace(limited, rows=tuple(long)), unlimited)


def chosen_jobs(groups: Collection[str], sizes: Collection[int]) -> list[Job]:
    """Select the rows of these groups that have one of these sizes, or no size."""
    found = []
    for job in all_jobs():
        rows = tuple(row for row in job.rows if not row.size_bytes or row.size_bytes in sizes)
        if job.group in groups and rows:
            found.append(replace(job, rows=rows))
    return found
