"""A job file beside -np, the hosts, this machine and the installed framework. The decisions are pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from farandole.launch import environment, job_file
from farandole.launch.hosts import LOCAL_HOST, HostList, HostSlots, is_local, parse_count
from farandole.launch.job_file import FRAMEWORKS, JobFile
from farandole.launch.messages import shown
from farandole.launch.placement import Placement
from farandole.launch.spec import SpecError

_GIB = 1 << 30


@dataclass(frozen=True)
class Machine:
    """The resources of this machine that processes may use."""

    gpus: int
    cores: int
    memory_bytes: int


def load(path: Path, command: Sequence[str], module: bool, dry_run: bool) -> JobFile:
    """The job file of -f. Raises SpecError, and SpecError where other options or the framework contradict it.

    Args:
        path: of the file.
        command: after the options; a job file replaces it.
        module: -m is given.
        dry_run: the framework may differ; `notes` tells.
    """
    if command:
        raise SpecError(f"give one of --file and COMMAND: the lines of {path} are the commands.")
    if module:
        raise SpecError(f"-m needs a COMMAND; write `python -m ...` in the lines of {path}.")
    file = job_file.read(path)
    if not dry_run and (sentence := about_version(file)):
        raise SpecError(sentence)
    return file


def notes(
    file: JobFile, base: Mapping[str, str], placements: Sequence[Placement], names: Collection[str], dry_run: bool
) -> list[str]:
    """Return sentences about keys that have no effect here, or ask for more than this machine has.

    Args:
        file: the job file.
        base: variables of the launcher.
        placements: of the ranks.
        names: names and addresses of this machine.
        dry_run: another version of the framework is no error.
    """
    here = sum(is_local(each.host, names) for each in placements)
    resources = about_resources(file, here, this_machine(base)) if here else ""
    return [each for each in (*file.notes, about_version(file) if dry_run else "", resources) if each]


def variables(file: JobFile, base: Mapping[str, str], folder: str, now_s: float) -> dict[str, str]:
    """Return the variables that programs written for RiseML read, without those already in the environment.

    Args:
        file: the job file.
        base: variables of the launcher.
        folder: the launcher's, which all hosts have.
        now_s: seconds since 1970.

    Raises:
        SpecError: the environment has another value for a variable that a parameter sets.
    """
    for name, value in file.variables.items():
        if base.get(name, value) != value:
            raise SpecError(
                f"{file.origin}: the parameter {name.lower()}, {shown(value)}, becomes the variable {name}, which the "
                f"environment has already; unset {name}, or rename the parameter."
            )
    experiment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_s)) + f"-{round(now_s * 1000) % 1000:03d}"
    wanted = {"OUTPUT_DIR": folder, "EXPERIMENT_ID": experiment, **file.variables}
    return {name: value for name, value in wanted.items() if name not in base}


def this_machine(base: Mapping[str, str]) -> Machine:
    """Look at this machine. `base`: variables of the launcher."""
    import psutil

    from farandole.launch import cgroups, gpus

    memory = int(min(psutil.virtual_memory().total, cgroups.memory()[0]))
    return Machine(gpus.count(base), environment.available_cores(), memory)


def about_version(file: JobFile, installed: Callable[[str], str] = environment.version_of) -> str:
    """Return a sentence if the framework is missing or has another version than the file wants; "" otherwise."""
    if not file.version:
        return ""
    names = FRAMEWORKS[file.framework]
    name, version = next(((name, found) for name in names if (found := installed(name))), (names[0], ""))
    if _is_like(version, file.version):
        return ""
    there = f"{name} {version} is" if version else f"no {name} is"
    remedy = "activate an environment that has it, or change version"
    return f"{file.origin} wants {file.framework} {file.version}, but {there} installed beside farandole; {remedy}."


def _is_like(version: str, wanted: str) -> bool:
    """2.13 is like 2.13.1 and 2.13.0+cpu, but not like 2.1."""
    parts = wanted.split(".")
    return version == wanted or version.partition("+")[0].split(".")[: len(parts)] == parts


def hosts_of(file: JobFile, num_proc: str | None, listed: HostList | None, gpus_here: int, dry_run: bool) -> HostList:
    """Return the hosts of the job. Raises SpecError if -np, the hosts and the file contradict each other.

    Args:
        file: the job file.
        num_proc: of -np, as typed.
        listed: of -H or --hostfile.
        gpus_here: of this machine.
        dry_run: workers that need hosts which the options do not name are worker-1, worker-2 and so on.
    """
    if num_proc not in (None, "auto") and parse_count(str(num_proc), "-np") != file.ranks:
        raise SpecError(f"-np {num_proc} contradicts {file.origin}, which asks for {_ranks(file)}; leave out -np.")
    if listed is not None:
        offered = sum(each.count for each in listed.slots)
        if offered < file.ranks:
            has = f"{offered} slot{'s' if offered > 1 else ''}"
            raise SpecError(f"{file.origin} asks for {_ranks(file)}, but {listed.origin} has {has}; list more slots.")
        return listed
    gpus = file.workers * file.resources.gpus
    if file.workers == 1 or gpus <= gpus_here:
        return HostList((HostSlots(LOCAL_HOST, file.ranks),), file.origin)
    if dry_run:
        slots = tuple(HostSlots(f"worker-{number}", file.processes) for number in range(1, file.workers + 1))
        return HostList(slots, file.origin)
    raise SpecError(
        f"{file.origin} asks for {gpus} GPUs on {file.workers} workers, and this machine has {gpus_here}; "
        f"name the hosts: -H h1:{file.processes},h2:{file.processes},..., or see the plan with --dry-run."
    )


def _ranks(file: JobFile) -> str:
    """`128 ranks (32 workers with 4 processes each)`."""
    ranks = "1 rank" if file.ranks == 1 else f"{file.ranks} ranks"
    workers = "1 worker" if file.workers == 1 else f"{file.workers} workers"
    processes = "1 process" if file.processes == 1 else f"{file.processes} processes"
    return f"{ranks} ({workers} with {processes}{' each' if file.workers > 1 else ''})"


def about_resources(file: JobFile, ranks_here: int, machine: Machine) -> str:
    """Return a sentence if the workers of this machine want more resources than it has; "" otherwise."""
    workers = -(-ranks_here // file.processes)
    wanted = file.resources
    lacking = []
    if (gpus := workers * wanted.gpus) > machine.gpus:
        lacking.append(f"{gpus} GPU{'s' if gpus > 1 else ''} (here: {machine.gpus})")
    if (cores := workers * (wanted.cpus or 0)) > machine.cores:
        lacking.append(f"{cores:g} cores (here: {machine.cores})")
    if (memory := workers * (wanted.memory_bytes or 0)) > machine.memory_bytes:
        lacking.append(f"{memory / _GIB:.1f} GiB of memory (here: {machine.memory_bytes / _GIB:.1f})")
    if not lacking:
        return ""
    whose = "its worker" if workers == 1 else f"the {workers} workers"
    verb = "wants" if workers == 1 else "want"
    return f"{file.origin}: {whose} on this machine {verb} {', '.join(lacking)}; the job starts all the same."
