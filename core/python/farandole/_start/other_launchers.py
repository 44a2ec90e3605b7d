"""Launchers whose processes are the ranks of one job, in a way that this release does not read, known by variables.

`init()` must not make a world of one in each of them without a word: every rank would train alone and save over the
others. A variable that counts the processes decides; one that only numbers them may also mean work that is not shared.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from farandole._start.horovod_names import MARK

_ON_ONE_HOST = "start the ranks of one host with `farandole run -np N`"


_IN_THE_SCRIPT = "call `farandole run` once in the job's script, which starts the ranks on all hosts of the allocation"


@dataclass(frozen=True)
class _Other:
    """Somebody who sets `variable` in each process: a count of them, of which 1 means alone, or a number of each."""

    title: str
    variable: str
    beside: tuple[str, ...] = ()  # without these it means something else
    unless: str = ""  # beside this one, too
    is_count: bool = True
    instead: str = f"{_ON_ONE_HOST}, and those of several with an MPI's mpirun"


_OTHERS = (
    _Other("Flux", "FLUX_JOB_SIZE", ("FLUX_TASK_RANK",), instead=_IN_THE_SCRIPT),
    _Other("LSF's jsrun", "JSM_NAMESPACE_SIZE", ("JSM_NAMESPACE_RANK",), instead=_IN_THE_SCRIPT),
    _Other("PBS's pbsdsh", "PBS_TASKNUM", instead=_IN_THE_SCRIPT),  # 1: the job's script
    _Other("MVAPICH's launcher", "MV2_COMM_WORLD_SIZE"),
    _Other("horovodrun", "HOROVOD_SIZE", unless=MARK, instead="replace `horovodrun` by `farandole run`"),
    _Other("a launcher by PMI", "PMI_SIZE", ("PMI_RANK",)),
    _Other(
        "a launcher for torch.distributed",
        "WORLD_SIZE",
        instead=f"{_ON_ONE_HOST} or `torchrun --nproc-per-node N`, which also set LOCAL_RANK and LOCAL_WORLD_SIZE",
    ),
    _Other("a launcher by PMIx", "PMIX_RANK", is_count=False),
    _Other(
        "an indexed job of Kubernetes",
        "JOB_COMPLETION_INDEX",
        is_count=False,
        instead="let each pod call `farandole run --nnodes`, as the manifest of `farandole k8s` does",
    ),
    _Other("LSF's blaunch", "LSF_PM_TASKID", is_count=False, instead=_IN_THE_SCRIPT),
    _Other("ALPS", "ALPS_APP_PE", is_count=False),
)


def one_of_several(environ: Mapping[str, str]) -> str:
    """The sentence for a process that is certainly one of several ranks; "" where it is not."""
    for other in _present(environ):
        value = environ[other.variable]
        if other.is_count and value.isdecimal() and int(value) > 1:
            return (
                f"{other.variable}={value}: {other.title} has started this process as one of several, in a way that "
                f"Farandole does not read, and each would be alone. Instead, {other.instead}; if it is meant to be "
                f"alone, unset {other.variable}"
            )
    return ""


def perhaps_one_of_several(environ: Mapping[str, str]) -> str:
    """The sentence for a process that has a number, of which nobody can tell how many there are; "" for others."""
    for other in _present(environ):
        if not other.is_count:
            return (
                f"{other.variable}={environ[other.variable]} is set, as by {other.title}, but nothing says how many "
                f"processes there are: this one is a world of one rank. If they are to train together, {other.instead}"
            )
    return ""


def _present(environ: Mapping[str, str]) -> Iterator[_Other]:
    for other in _OTHERS:
        is_there = other.variable in environ and all(name in environ for name in other.beside)
        if is_there and other.unless not in environ:
            yield other


def variables() -> set[str]:
    """All variables of the table."""
    return {name for other in _OTHERS for name in (other.variable, *other.beside)}
