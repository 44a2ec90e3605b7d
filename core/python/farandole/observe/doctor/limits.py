"""Checks how much memory, and how many files, processes and cores a job may use here."""

from __future__ import annotations

import os
import resource
from math import inf
from pathlib import Path

import psutil

from farandole.launch import cgroups
from farandole.observe.doctor.finding import Finding, warn, warn_unless

_MIB = 1 << 20
_ENOUGH_MEMORY = 512 * _MIB
_ENOUGH_FILES = 1024
_ENOUGH_PROCESSES = 256
_ENOUGH_LOCKED = 1 << 30


def check() -> list[Finding]:
    """Check the limits of this machine."""
    is_root = os.getuid() == 0  # the number of root's processes is not limited
    has_rdma = any(Path("/sys/class/infiniband").glob("*"))
    return [
        memory(psutil.virtual_memory().available, *cgroups.memory()),
        open_files(_soft(resource.RLIMIT_NOFILE)),
        processes(inf if is_root else _soft(resource.RLIMIT_NPROC), _threads_of(os.getuid())),
        locked_memory(_soft(resource.RLIMIT_MEMLOCK), has_rdma),
        cores(os.cpu_count() or 1, len(os.sched_getaffinity(0)), cgroups.cores()),
    ]


def _soft(limit: int) -> float:
    soft = resource.getrlimit(limit)[0]
    return inf if soft == resource.RLIM_INFINITY else soft


def _threads_of(uid: int) -> int:
    count = 0
    for process in psutil.process_iter():
        try:
            count += process.num_threads() if process.uids().real == uid else 0
        except psutil.Error:
            continue
    return count


def memory(available: int, limit: float, used: int) -> Finding:
    """Assess the memory, in bytes: that of the machine, and the tightest limit of its control groups."""
    text = f"{_mib(available)} available on this machine"
    if limit != inf:
        text += f"; this cgroup uses {_mib(used)} of {_mib(limit)}, shared memory counts"
    fix = "Raise the container's memory limit or end other programs: the kernel kills a rank that lacks it."
    return warn_unless(min(available, limit - used) >= _ENOUGH_MEMORY, "memory", text, fix)


def open_files(limit: float) -> Finding:
    """Assess the limit of open files of a process."""
    bad = f"{limit}: a rank needs some for each other rank, and data loaders many"
    fix = f"Raise it with `ulimit -n {_ENOUGH_FILES}` or more before the job starts."
    return warn_unless(limit >= _ENOUGH_FILES, "open files", _count(limit), fix, bad)


def processes(limit: float, running: int) -> Finding:
    """Assess the limit of threads of this user."""
    text = f"{_count(limit)}; {running} threads of this user run now"
    fix = f"Raise it with `ulimit -u {running + 4 * _ENOUGH_PROCESSES}` or more before the job starts."
    bad = f"{text}: each rank starts one per core and data loaders more"
    return warn_unless(limit - running >= _ENOUGH_PROCESSES, "processes", text, fix, bad)


def locked_memory(limit: float, has_rdma: bool) -> Finding:
    """Assess the limit of locked memory, in bytes."""
    text = "unlimited" if limit == inf else f"{_mib(limit)} may be locked"
    bad = f"{text}, but this machine has InfiniBand or RoCE, for which NCCL and MPI lock their buffers"
    fix = "Raise it with `ulimit -l unlimited`; in Docker, --ulimit memlock=-1."
    is_enough = not has_rdma or limit >= _ENOUGH_LOCKED
    return warn_unless(is_enough, "locked memory", f"{text}; Farandole itself locks none", fix, bad)


def cores(here: int, by_affinity: int, by_quota: float) -> Finding:
    """Assess the cores of the machine, and those that a rank may use."""
    text = f"{by_affinity} of {here} by affinity"
    if by_quota != inf:
        text += f", time for {by_quota:g} by the cgroup's quota"
    if by_quota < 1:
        fix = "Give the container at least one core: ranks that wait for time make all others wait."
        return warn("cores", text, fix)
    bad = f"{text}: libraries start too many threads"
    fix = "Start ranks with `farandole run`, which sets OMP_NUM_THREADS to what the quota grants, or set it."
    return warn_unless(by_quota >= by_affinity, "cores", f"{text}; more ranks than that take turns", fix, bad)


def _count(limit: float) -> str:
    return "unlimited" if limit == inf else str(limit)


def _mib(size: float) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / _MIB:.0f} MiB"
