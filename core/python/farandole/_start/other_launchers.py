"""Launchers whose processes are the ranks of one job, in a way that this release does not read, known by variables.

`init()` must not make a world of one in each of them without a word: every rank would train alone and save over the
others. A count above one proves that there are others, and so does the number of a process that is not the first. The
number of the first process may also mean work that is not shared, so that is a warning. Pure.
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
    count: str = ""  # the variable with the number of processes, of which 1 means alone
    beside: tuple[str, ...] = ()  # without these the count means something else
    rank: str = ""  # the variable with the number of each
    first: int = 0  # the number of the first of them
    unless: str = ""  # beside this variable, none of these means anything
    instead: str = f"{_ON_ONE_HOST}, and those of several with an MPI's mpirun"


_OTHERS = (
    _Other("Flux", "FLUX_JOB_SIZE", ("FLUX_TASK_RANK",), "FLUX_TASK_RANK", instead=_IN_THE_SCRIPT),
    _Other(
        *("LSF's jsrun", "JSM_NAMESPACE_SIZE", ("JSM_NAMESPACE_RANK",), "JSM_NAMESPACE_RANK"), instead=_IN_THE_SCRIPT
    ),
    _Other("PBS's pbsdsh", "PBS_TASKNUM", instead=_IN_THE_SCRIPT),  # a number, but 1 is the job's script
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
    """The sentence for a process that is certainly one of several ranks; "" where it is not."""
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
    """The sentence for a process that has a number, of which nobody can tell how many there are; "" for others."""
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
    """All variables of the table."""
    return {name for other in _OTHERS for name in (other.count, other.rank, *other.beside) if name}
