"""The ranks of a job step of Slurm's srun, according to the step's variables. Pure.

The shell of a batch script also has SLURM_PROCID and SLURM_NTASKS, but is not a rank: only SLURM_STEP_NUM_TASKS counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

TITLE = "Slurm's srun"
TASKS_PER_NODE = "SLURM_STEP_TASKS_PER_NODE"
NUM_TASKS = "SLURM_STEP_NUM_TASKS"
INSTEAD = "call `farandole run` once in the allocation, without srun: it starts the ranks on all of its hosts"
_TASKS = re.compile(r"(?P<count>[0-9]{1,9})(?:\(x(?P<times>[0-9]{1,9})\))?")
_MOST_HOSTS = 65536


def task_counts(text: str) -> list[int]:
    """Return the number of tasks of each host: `2(x3),1` is 2, 2, 2, 1. Raises ValueError without a message."""
    counts: list[int] = []
    for part in text.split(","):
        match = _TASKS.fullmatch(part)
        times = int(match["times"] or 1) if match else 0
        if match is None or times + len(counts) > _MOST_HOSTS:
            raise ValueError
        counts += [int(match["count"])] * times
    return counts


def tasks_here(environ: Mapping[str, str]) -> int:
    """Return the number of the step's tasks on this host. Raises ValueError with a sentence."""
    node, tasks = environ.get("SLURM_NODEID", ""), environ.get(TASKS_PER_NODE, "")
    try:
        return task_counts(tasks)[int(node)]
    except (ValueError, IndexError):
        raise ValueError(
            f"{TASKS_PER_NODE}={tasks!r} and SLURM_NODEID={node!r} do not tell the number of ranks on this host. "
            f"{TITLE} sets both; start the ranks with it, or unset {NUM_TASKS} for a world of one rank"
        ) from None


def contradiction(environ: Mapping[str, str]) -> str:
    """Return the sentence for a step of several programs, in which PMI's count differs from the step's, else ""."""
    size, tasks = environ.get("PMI_SIZE", ""), environ.get(NUM_TASKS, "")
    if not size or size == tasks:
        return ""
    return (
        f"PMI_SIZE={size!r} and {NUM_TASKS}={tasks!r} contradict each other, and {TITLE} sets both, as in a step of "
        "several programs; start all ranks as one program of one step"
    )


def of_several_torchruns(environ: Mapping[str, str]) -> str:
    """Return the sentence for a rank of torchrun, if srun started several torchruns with separate jobs, else ""."""
    tasks = environ.get(NUM_TASKS, "")
    if environ.get("GROUP_WORLD_SIZE") != "1" or not tasks.isdecimal() or int(tasks) < 2:
        return ""
    return (
        f"srun has started {tasks} torchruns ({NUM_TASKS}), and each of them a job of its own (GROUP_WORLD_SIZE=1), "
        f"so that {tasks} jobs would train separately: start the ranks with `srun --mpi=pmi2 python train.py`, or "
        f"give all torchruns --nnodes={tasks} and one --rdzv-endpoint; if separate jobs are intended, unset {NUM_TASKS}"
    )


def doubt(environ: Mapping[str, str]) -> str:
    """Return the warning for a single program in a batch script whose allocation has several tasks, else ""."""
    tasks = environ.get("SLURM_NTASKS", "")
    is_alone = "SLURM_JOB_ID" in environ and "SLURM_PROCID" in environ and NUM_TASKS not in environ
    if not is_alone or not tasks.isdecimal() or int(tasks) < 2:
        return ""
    return (
        f"SLURM_NTASKS={tasks}, but the script of Slurm's job has started this process once: it is a world of one "
        "rank. If the tasks are to train together, write `srun --mpi=pmi2` or `farandole run` before the command"
    )


def no_channel(size: int) -> str:
    """Return the sentence for ranks on several hosts that srun gave no way to exchange bytes."""
    return (
        f"srun has started {size} ranks on several hosts without PMI-2: start them with `srun --mpi=pmi2`, or {INSTEAD}"
    )
