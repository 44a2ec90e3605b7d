"""Recognizes, by their variables, launchers that this release does not support.

In their processes, `init()` must not silently make worlds of one rank: every rank would train alone and overwrite the
others' files. A count above one, or the number of a process that is not the first, proves that there are others. The
number of the first process alone may also mean work that is not shared, so it only causes a warning. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from farandole._start import slurm
from farandole._start.horovod_names import MARK

_ON_ONE_HOST = "start the ranks of one host with `farandole run -np N`"
_IN_THE_SCRIPT = "call `farandole run` once in the job's script, which starts the ranks on all hosts of the allocation"


@dataclass(frozen=True)
class _Other:
    """A launcher that tells each process the number of processes, its own number, or both."""

    title: str
    count: str = ""  # variable with the number of processes; 1 means alone
    beside: tuple[str, ...] = ()  # without these variables, the count means something else
    rank: str = ""  # variable with the number of this process
    first: int = 0  # number of the first process
    unless: str = ""  # if this variable is set, the others mean nothing
    instead: str = f"{_ON_ONE_HOST}, and those of several with an MPI's mpirun"


_OTHERS = (
    _Other("Flux", "FLUX_JOB_SIZE", ("FLUX_TASK_RANK",), "FLUX_TASK_RANK", instead=_IN_THE_SCRIPT),
    _Other(
        *("LSF's jsrun", "JSM_NAMESPACE_SIZE", ("JSM_NAMESPACE_RANK",), "JSM_NAMESPACE_RANK"), instead=_IN_THE_SCRIPT
    ),
    _Other("PBS's pbsdsh", "PBS_TASKNUM", instead=_IN_THE_SCRIPT),  # numbered, but number 1 is the job's script
    _Other("MVAPICH's launcher", "MV2_COMM_WORLD_SIZE", rank="MV2_COMM_WORLD_RANK"),
    _Other(
        *("horovodrun", "HOROVOD_SIZE"),
        rank="HOROVOD_RANK",
        unless=MARK,
        instead="replace `horovodrun` by `farandole run`",
    ),
    _Other("a launcher by PMI", "PMI_SIZE", ("PMI_RANK",), "PMI_RANK"),
    _Other(
        "a launcher for torch.distributed",
        "WORLD_SIZE",
        rank="RANK",
        instead=f"{_ON_ONE_HOST} or `torchrun --nproc-per-node N`, which also set LOCAL_RANK and LOCAL_WORLD_SIZE",
    ),
    _Other(slurm.TITLE, slurm.NUM_TASKS, ("SLURM_STEP_ID",), "SLURM_PROCID", instead=slurm.INSTEAD),
    _Other("a launcher by PMIx", rank="PMIX_RANK"),
    _Other(
        "an indexed job of Kubernetes",
        rank="JOB_COMPLETION_INDEX",
        instead="let each pod call `farandole run --nnodes`, as the manifest of `farandole k8s` does",
    ),
    _Other("LSF's blaunch", rank="LSF_PM_TASKID", first=1, instead=_IN_THE_SCRIPT),
    _Other("ALPS", rank="ALPS_APP_PE"),
)


def one_of_several(environ: Mapping[str, str]) -> str:
    """Return the sentence for a process that is certainly one of several ranks, else ""."""
    for other in _present(environ):
        counts = other.count if all(name in environ for name in other.beside) else ""
        for variable, alone in ((counts, 1), (other.rank, other.first)):
            value = environ.get(variable, "")
            if value.isdecimal() and int(value) > alone:
                return (
                    f"{variable}={value}: {other.title} has started this process as one of several, but Farandole "
                    f"cannot tell how they find each other, so each would train alone. Instead, {other.instead}; if it "
                    f"is meant to run alone, unset {variable}"
                )
    return ""


def perhaps_one_of_several(environ: Mapping[str, str]) -> str:
    """Return the sentence for a process that has a number but no count, so there may be others; else ""."""
    for other in _present(environ):
        if not other.count and other.rank in environ:
            return (
                f"{other.rank}={environ[other.rank]} is set, as by {other.title}, but not the number of processes, "
                f"so this one runs alone. If several are meant to train together, {other.instead}"
            )
    return ""


def _present(environ: Mapping[str, str]) -> Iterator[_Other]:
    return (other for other in _OTHERS if other.unless not in environ)


def variables() -> set[str]:
    """Return all variables of the table."""
    return {name for other in _OTHERS for name in (other.count, other.rank, *other.beside) if name}
