"""How much memory, how many files, processes and cores a job may use here."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from farandole.observe.doctor.finding import Finding, ok, warn

UNLIMITED = -1
_MIB = 1 << 20
_ENOUGH_MEMORY = 512 * _MIB
_ENOUGH_FILES = 1024
_ENOUGH_PROCESSES = 256
_ENOUGH_LOCKED = 1 << 30


@dataclass(frozen=True)
class Facts:
    """Sizes in bytes; UNLIMITED where there is no limit."""

    memory_available: int  # of the whole machine
    memory_limit: int  # the tightest of our cgroups
    memory_used: int  # in that cgroup
    open_files: int
    processes: int
    processes_running: int  # threads of this user
    processes_are_limited: bool  # root's are not
    locked: int
    has_rdma: bool
    cpus: int
    cpus_by_affinity: int
    cpus_by_quota: float  # UNLIMITED where there is none


def gather(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup"), sys: Path = Path("/sys")) -> Facts:
    """Ask this machine."""
    limit, used = memory_of_groups(proc, cgroups)
    return Facts(
        memory_available=psutil.virtual_memory().available,
        memory_limit=limit,
        memory_used=used,
        open_files=_soft(resource.RLIMIT_NOFILE),
        processes=_soft(resource.RLIMIT_NPROC),
        processes_running=_threads_of(os.getuid()),
        processes_are_limited=os.getuid() != 0,
        locked=_soft(resource.RLIMIT_MEMLOCK),
        has_rdma=any((sys / "class/infiniband").glob("*")),
        cpus=os.cpu_count() or 1,
        cpus_by_affinity=len(os.sched_getaffinity(0)),
        cpus_by_quota=quota_of_groups(proc, cgroups),
    )


def memory_of_groups(proc: Path, cgroups: Path) -> tuple[int, int]:
    """(limit, used) of the tightest memory cgroup above this process, of version 2 or 1; (UNLIMITED, 0) for none."""
    found = [(UNLIMITED, 0)]
    for folder in _folders(proc, cgroups, "memory"):
        for limit_file, used_file in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = _number(folder / limit_file), _number(folder / used_file)
            if limit is not None and limit < 1 << 60:  # version 1 says "no limit" with a number near 2^63
                found.append((limit, used or 0))
    return min(found[1:], key=lambda pair: pair[0] - pair[1], default=found[0])


def quota_of_groups(proc: Path, cgroups: Path) -> float:
    """Cores' worth of time that the tightest cpu cgroup above this process grants; UNLIMITED for none."""
    found = []
    for folder in _folders(proc, cgroups, "cpu"):
        try:
            quota, period = (folder / "cpu.max").read_text().split()
        except (OSError, ValueError):
            quota, period = str(_number(folder / "cpu.cfs_quota_us")), str(_number(folder / "cpu.cfs_period_us"))
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            found.append(int(quota) / int(period))
    return min(found, default=float(UNLIMITED))


def _folders(proc: Path, cgroups: Path, controller: str) -> Iterator[Path]:
    """The cgroup folders of this process and above it. In a container its own group is mounted at the top."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        tops = [cgroups / controller] if names else [cgroups, cgroups / "unified"]
        for top in tops:
            here = top / path.lstrip("/")
            yield from (folder for folder in (here, *here.parents) if folder.is_relative_to(top))


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _soft(limit: int) -> int:
    soft = resource.getrlimit(limit)[0]
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def _threads_of(uid: int) -> int:
    count = 0
    for process in psutil.process_iter():
        try:
            count += process.num_threads() if process.uids().real == uid else 0
        except psutil.Error:
            continue
    return count


def judge(facts: Facts) -> list[Finding]:
    """Limits -> findings."""
    return [_memory(facts), _files(facts), _processes(facts), _locked(facts), _cores(facts)]


def _memory(facts: Facts) -> Finding:
    free = facts.memory_available
    text = f"{_mib(free)} available on this machine"
    if facts.memory_limit != UNLIMITED:
        free = min(free, facts.memory_limit - facts.memory_used)
        text += f"; this cgroup uses {_mib(facts.memory_used)} of {_mib(facts.memory_limit)}, shared memory counts"
    if free >= _ENOUGH_MEMORY:
        return ok("memory", text)
    return warn(
        "memory",
        text,
        "Raise the container's memory limit or end other programs: the kernel kills a rank that lacks it.",
    )


def _files(facts: Facts) -> Finding:
    if not 0 <= facts.open_files < _ENOUGH_FILES:
        return ok("open files", _count(facts.open_files))
    return warn(
        "open files",
        f"{facts.open_files}: a rank needs some for each other rank, and data loaders many",
        f"Raise it with `ulimit -n {_ENOUGH_FILES}` or more before the job starts.",
    )


def _processes(facts: Facts) -> Finding:
    if facts.processes == UNLIMITED or not facts.processes_are_limited:
        return ok("processes", f"{_count(facts.processes)}; {facts.processes_running} threads of this user run now")
    text = f"{facts.processes}, {facts.processes_running} threads of this user run now"
    if facts.processes - facts.processes_running >= _ENOUGH_PROCESSES:
        return ok("processes", text)
    return warn(
        "processes",
        f"{text}: each rank starts one per core and data loaders more",
        f"Raise it with `ulimit -u {facts.processes_running + 4 * _ENOUGH_PROCESSES}` or more before the job starts.",
    )


def _locked(facts: Facts) -> Finding:
    text = "unlimited" if facts.locked == UNLIMITED else f"{_mib(facts.locked)} may be locked"
    if not facts.has_rdma or facts.locked == UNLIMITED or facts.locked >= _ENOUGH_LOCKED:
        return ok("locked memory", f"{text}; Farandole itself locks none")
    return warn(
        "locked memory",
        f"{text}, but this machine has InfiniBand or RoCE, for which NCCL and MPI lock their buffers",
        "Raise it with `ulimit -l unlimited`; in Docker, --ulimit memlock=-1.",
    )


def _cores(facts: Facts) -> Finding:
    usable = float(facts.cpus_by_affinity)
    text = f"{facts.cpus_by_affinity} of {facts.cpus} by affinity"
    if facts.cpus_by_quota != UNLIMITED:
        usable = min(usable, facts.cpus_by_quota)
        text += f", time for {facts.cpus_by_quota:g} by the cgroup's quota"
    if usable < 1:
        return warn(
            "cores", text, "Give the container at least one core: ranks that wait for time make all others wait."
        )
    if usable < facts.cpus_by_affinity:
        return warn(
            "cores",
            f"{text}: libraries start too many threads",
            "Start ranks with `farandole run`, which sets OMP_NUM_THREADS to what the quota grants, or set it.",
        )
    return ok("cores", f"{text}; more ranks than that take turns")


def _count(limit: int) -> str:
    return "unlimited" if limit == UNLIMITED else str(limit)


def _mib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / _MIB:.0f} MiB"
