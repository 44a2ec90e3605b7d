"""Finds this process's rank in the environment, which no other Python file of this package reads.

A launcher (`farandole run`, torchrun, mpirun) tells each process its place through variables. The first one in
the table below whose variables are there is believed; without any, the process is a world of its own.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from farandole._start import other_launchers, slurm, sockets
from farandole._start.horovod_names import MARK, horovod_variables

OURS = "farandole run"
TORCHRUN = "torchrun"
SRUN = slurm.TITLE
GIVEN = "the program itself"
_MOST_SECONDS = 1e9  # as in the core


@dataclass(frozen=True)
class World:
    """A process's place, and where its peers are met."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among the processes of this host
    local_size: int = 1
    cross_rank: int = 0  # among the processes with this local_rank, one per host
    cross_size: int = 1
    store: str = ""  # "unix:<abstract name>" or "tcp:<host>:<port>"; "" in a world of one, and where MPI has to tell it
    key_file: str = ""  # path of the job's 32 secret bytes; "" where the key must be exchanged first
    launcher: str = ""  # that set the variables; "" where none did
    joins: int = -1  # the number of this process in an elastic job that runs already; its place is provisional then


@dataclass(frozen=True)
class _Launcher:
    """The variables of one launcher. An empty name: the launcher has no such variable, and the job is on one host."""

    title: str
    markers: tuple[tuple[str, ...], ...]  # believed when all variables of one of these are there
    rank: str
    size: str
    local_rank: str
    local_size: str
    cross_rank: str = ""
    cross_size: str = ""


_FARANDOLE = _Launcher(
    title=OURS,
    markers=(("FARANDOLE_RANK",), ("FARANDOLE_SIZE",)),
    rank="FARANDOLE_RANK",
    size="FARANDOLE_SIZE",
    local_rank="FARANDOLE_LOCAL_RANK",
    local_size="FARANDOLE_LOCAL_SIZE",
    cross_rank="FARANDOLE_CROSS_RANK",
    cross_size="FARANDOLE_CROSS_SIZE",
)
_TORCHRUN = _Launcher(
    title=TORCHRUN,
    markers=(("TORCHELASTIC_RUN_ID",), ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")),
    rank="RANK",
    size="WORLD_SIZE",
    local_rank="LOCAL_RANK",
    local_size="LOCAL_WORLD_SIZE",
)
_OPEN_MPI = _Launcher(
    title="Open MPI's mpirun",
    markers=(("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",)),
    rank="OMPI_COMM_WORLD_RANK",
    size="OMPI_COMM_WORLD_SIZE",
    local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
    local_size="OMPI_COMM_WORLD_LOCAL_SIZE",
)
_MPICH = _Launcher(
    title="MPICH's mpiexec",
    markers=(("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),),  # Slurm has a PMI, too
    rank="PMI_RANK",
    size="PMI_SIZE",
    local_rank="MPI_LOCALRANKID",
    local_size="MPI_LOCALNRANKS",
)
# mpirun and torchrun may themselves be started by srun, so that it comes last.
_SRUN = _Launcher(
    title=slurm.TITLE,
    markers=((slurm.NUM_TASKS, "SLURM_PROCID", "SLURM_STEP_ID"),),
    rank="SLURM_PROCID",
    size=slurm.NUM_TASKS,
    local_rank="SLURM_LOCALID",
    local_size=slurm.TASKS_PER_NODE,
)
_LAUNCHERS = (_FARANDOLE, _TORCHRUN, _OPEN_MPI, _MPICH, _SRUN)
# Backends whose library a package of the index has: the package's module, the file in its folder.
_PACKAGES = {
    "gloo": ("farandole_gloo", "libfarandole_gloo.so"),
    "nccl": ("nvidia.nccl", "lib/libnccl.so.2"),
}
_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "TORCHELASTIC_", "SLURM_STEP_")
_RENDEZVOUS = frozenset(
    {
        *("FARANDOLE_STORE", "FARANDOLE_KEY_FILE", "FARANDOLE_STATUS_FILE", "FARANDOLE_MEMBERSHIP"),
        *("FARANDOLE_JOINS", "MASTER_ADDR", "MASTER_PORT"),
    }
)


def discover(environ: Mapping[str, str] | None = None) -> World:
    """This process's place according to its environment; a world of one where no launcher is found.

    Raises:
        ValueError: variables that are missing, are no numbers or contradict each other, with name, value and who sets
            them; a job of torchrun on several hosts; a missing key file where one is required; one of several processes
            of a launcher that is not read.
    """
    environ = os.environ if environ is None else environ
    if (found := _started(environ)) is not None:
        return found
    if sentence := other_launchers.one_of_several(environ):
        raise ValueError(sentence)
    return World()


def _started(environ: Mapping[str, str]) -> World | None:
    for launcher in _LAUNCHERS:
        if any(all(name in environ for name in names) for names in launcher.markers):
            world = _place(environ, launcher)
            if sentence := _two_launchers(environ, launcher):
                raise ValueError(sentence)
            if launcher is _FARANDOLE and (number := environ.get("FARANDOLE_JOINS")):
                return replace(world, key_file=environ.get("FARANDOLE_KEY_FILE", ""), joins=int(number))
            return _our_rendezvous(environ, world) if launcher is _FARANDOLE else _others_rendezvous(environ, world)
    return None


def _two_launchers(environ: Mapping[str, str], launcher: _Launcher) -> str:
    if launcher is _TORCHRUN:
        return slurm.of_several_torchruns(environ)
    return slurm.contradiction(environ) if launcher is _SRUN else ""


def is_a_rank() -> bool:
    """Returns whether a launcher has started this process as one of several."""
    try:
        found = _started(os.environ)
    except ValueError:
        return True
    return found is not None and found.size > 1


def doubt(world: World) -> str:
    """A warning for a process that is alone, although variables speak of several; "" for others."""
    if world.launcher:
        return ""
    return slurm.doubt(os.environ) or other_launchers.perhaps_one_of_several(os.environ)


def discover_or_given(rank: int, size: int, job: Callable[[], str]) -> World:
    """A process's place, by a launcher's variables, else as `size` ranks of one job were told it; see `given`.

    Raises ValueError: like `discover`, numbers that cannot be right, or FARANDOLE_REQUIRE_KEY.
    """
    found = _started(os.environ)
    return found or (given(rank, size, job()) if size > 1 else World())


def given(rank: int, size: int, job: str) -> World:
    """The place of one of `size` ranks. `job`: its name, alike on all of them; "" where they are on several hosts.

    Raises ValueError: numbers that cannot be right, or FARANDOLE_REQUIRE_KEY.
    """
    if not 0 <= rank < size:
        raise ValueError(f"rank {rank} of {size} cannot be right: 0 <= rank < size")
    on_this_host = (rank, size) if job else (0, 1)  # else the ranks find out who is where
    world = World(rank, size, *on_this_host, launcher=GIVEN)
    return _others_rendezvous({**os.environ, "FARANDOLE_JOB_ID": job}, world)


def without_launchers() -> dict[str, str]:
    """A copy of the environment in which no launcher is found, for processes that are to be started anew."""
    places = {
        name
        for each in _LAUNCHERS
        for name in (each.rank, each.size, each.local_rank, each.local_size, each.cross_rank, each.cross_size)
    }
    known = places | _RENDEZVOUS | other_launchers.variables() | {*horovod_variables(vars(World()), "")}
    return {name: value for name, value in os.environ.items() if not name.startswith(_PREFIXES) and name not in known}


def tell_horovods_readers(world: World) -> None:
    """Sets HOROVOD_RANK and its like for this process, where a launcher or the program has told it its place.

    Also where an earlier world of this process, or of the one that started it, has set them.
    """
    if world.launcher or MARK in os.environ:
        os.environ.update(horovod_variables(vars(world), os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname()))


def start_timeout_s() -> float:
    """FARANDOLE_START_TIMEOUT, in seconds: how long init waits for the other ranks. Raises ValueError."""
    return _seconds("FARANDOLE_START_TIMEOUT", "120")


def silence_timeout_s() -> float:
    """When a host that says nothing counts as lost: FARANDOLE_SILENCE_TIMEOUT. Raises ValueError."""
    return sockets.silence_timeout_s(os.environ)


def _seconds(name: str, default: str) -> float:
    text = os.environ.get(name) or default
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _MOST_SECONDS:
        raise ValueError(
            f"{name}={text!r} is not understood; allowed: a number of seconds from 0 to {_MOST_SECONDS:g}, without a "
            "unit"
        )
    return seconds


def membership() -> str:
    """The socket at which the launcher of an elastic job decides about its ranks: FARANDOLE_MEMBERSHIP; "" for none."""
    return os.environ.get("FARANDOLE_MEMBERSHIP", "")


def commits() -> str:
    """The folder that keeps the commits of an elastic job; "" if nothing outside of the ranks does."""
    return os.environ.get("FARANDOLE_COMMITS", "")


def address() -> str:
    """FARANDOLE_ADDRESS, the address at which other hosts reach this rank; "" if it is unset."""
    return os.environ.get("FARANDOLE_ADDRESS", "")


def pmi2() -> tuple[int, str] | None:
    """Slurm's PMI-2: the number of its socket in this process, and its name of the step; None where there is none."""
    descriptor, job = (os.environ.get(name, "") for name in ("PMI_FD", "PMI_JOBID"))
    return (int(descriptor), job) if descriptor.isdecimal() and job else None


def status_file() -> str:
    """Path of the records of ranks, FARANDOLE_STATUS_FILE; "" where `farandole run` has not started this process."""
    return os.environ.get("FARANDOLE_STATUS_FILE", "")


def given_key_file() -> str:
    """Path of the job's key, FARANDOLE_KEY_FILE; "" where it is not set. `key_file` may ask for it."""
    return os.environ.get("FARANDOLE_KEY_FILE", "")


def flight_recorder() -> str:
    """The folder for recordings of operations, or "0" for none; by default a folder of this user."""
    return os.environ.get("FARANDOLE_FLIGHT_RECORDER", "")


def log_level() -> str:
    """The level of FARANDOLE_LOG_LEVEL, as Python's logging names it; WARNING where it is not set."""
    level = os.environ.get("FARANDOLE_LOG_LEVEL", "").upper()
    return level if level in ("ERROR", "INFO", "DEBUG") else "WARNING"


def shows_details() -> bool:
    """FARANDOLE_LOG_LEVEL is info or debug: tracebacks are shown that repeat another rank's failure."""
    return log_level() in ("INFO", "DEBUG")


def checks_parameters() -> bool:
    """Returns whether the ranks compare their parameters in the first step: FARANDOLE_CHECK_PARAMETERS."""
    return _switch("FARANDOLE_CHECK_PARAMETERS", "1")


def backends() -> list[str]:
    """The list of FARANDOLE_BACKEND; empty where the core decides."""
    return [name.strip() for name in os.environ.get("FARANDOLE_BACKEND", "").split(",") if name.strip()]


def test_launcher(ranks: int) -> list[str]:
    """The command that starts the ranks of tests: FARANDOLE_TEST_LAUNCHER, `mpirun -n {ranks}`; [] for our launcher."""
    return [word.format(ranks=ranks) for word in shlex.split(os.environ.get("FARANDOLE_TEST_LAUNCHER", ""))]


def find_libraries(wanted: Sequence[str] | None = None) -> None:
    """Sets FARANDOLE_NCCL_LIB and FARANDOLE_GLOO_LIB to the libraries of installed packages.

    These are nvidia-nccl-cu12 or -cu13, and farandole-gloo. A variable that is set stays, and so does one whose backend
    is not among those `wanted`, by default those of FARANDOLE_BACKEND.
    """
    for backend, (package, file) in _PACKAGES.items():
        variable = f"FARANDOLE_{backend.upper()}_LIB"
        if backend in (backends() if wanted is None else wanted) and not os.environ.get(variable):
            path = next((folder / file for folder in _folders_of(package) if (folder / file).is_file()), None)
            if path:
                os.environ[variable] = str(path)


def _folders_of(package: str) -> list[Path]:
    """The folders of a package, which is not imported; none where it is not installed."""
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # one that it lies in is missing
        return []
    return [Path(folder) for folder in (found.submodule_search_locations if found else None) or ()]


def cuda_driver() -> str:
    """The name or path of the CUDA driver's library: FARANDOLE_CUDA_DRIVER."""
    return os.environ.get("FARANDOLE_CUDA_DRIVER") or "libcuda.so.1"


def timeline() -> str:
    """FARANDOLE_TIMELINE, the file to record a timeline in from `init` on; "" for none."""
    return os.environ.get("FARANDOLE_TIMELINE", "")


def marks_cycles() -> bool:
    """Returns whether that also marks what was agreed on together: FARANDOLE_TIMELINE_MARK_CYCLES=1."""
    return _switch("FARANDOLE_TIMELINE_MARK_CYCLES", "0")


def _switch(name: str, default: str) -> bool:
    """Raises ValueError for another word than 0 and 1."""
    text = os.environ.get(name) or default
    if text not in ("0", "1"):
        raise ValueError(f"{name}={text!r} is not understood; allowed: 0 or 1")
    return text == "1"


def _place(environ: Mapping[str, str], launcher: _Launcher) -> World:
    size = _number(environ, launcher, launcher.size, least=1)
    rank = _number(environ, launcher, launcher.rank, below=size, bound=launcher.size)
    if size == 1:
        return World(launcher=launcher.title)
    if launcher is _TORCHRUN and launcher.local_size not in environ:
        return _place_by_older_torch(environ, size, rank)
    if launcher is _SRUN:
        local_size = slurm.tasks_here(environ)
    else:
        local_size = _number(environ, launcher, launcher.local_size, least=1)
    local_rank = _number(environ, launcher, launcher.local_rank, below=local_size, bound=launcher.local_size)
    if local_size > size:
        raise _inconsistent(environ, launcher, launcher.local_size, f"it exceeds {launcher.size}={size}")
    cross_size = _number(environ, launcher, launcher.cross_size, least=1) if launcher.cross_size else 1
    cross_rank = 0
    if launcher.cross_rank:
        cross_rank = _number(environ, launcher, launcher.cross_rank, below=cross_size, bound=launcher.cross_size)
    return World(rank, size, local_rank, local_size, cross_rank, cross_size, launcher=launcher.title)


def _place_by_older_torch(environ: Mapping[str, str], size: int, rank: int) -> World:
    """The launchers before torchrun say LOCAL_RANK alone; it equals RANK where there is one host."""
    local_rank = _number(environ, _TORCHRUN, _TORCHRUN.local_rank)
    if local_rank != rank:
        raise ValueError(
            f"RANK={rank} and LOCAL_RANK={local_rank} mean several hosts, and LOCAL_WORLD_SIZE is not set; start the "
            f"ranks with torchrun or {OURS}. {_TORCHRUN.title} sets these variables"
        )
    return World(rank, size, rank, size, launcher=_TORCHRUN.title)


def _number(
    environ: Mapping[str, str],
    launcher: _Launcher,
    name: str,
    least: int = 0,
    below: int | None = None,
    bound: str = "",
) -> int:
    if name not in environ:
        raise ValueError(_lacking(environ, launcher, name))
    try:
        value = int(environ[name])
    except ValueError:
        raise _inconsistent(environ, launcher, name, "it is not a whole number") from None
    if value < least:
        raise _inconsistent(environ, launcher, name, f"it must be at least {least}")
    if below is not None and value >= below:
        raise _inconsistent(environ, launcher, name, f"it must be below {bound}={below}")
    return value


def _lacking(environ: Mapping[str, str], launcher: _Launcher, name: str) -> str:
    names = (launcher.rank, launcher.size, *(each for marker in launcher.markers for each in marker))
    present = next(each for each in names if each in environ)
    return (
        f"{name} is not set, but {present} is, and {launcher.title} sets both: start the ranks with it, or unset "
        f"{present} for a world of one rank"
    )


def _inconsistent(environ: Mapping[str, str], launcher: _Launcher, name: str, why: str) -> ValueError:
    return ValueError(f"{name}={environ[name]!r} cannot be right: {why}. {launcher.title} sets this variable")


def _our_rendezvous(environ: Mapping[str, str], world: World) -> World:
    if world.size == 1:
        return world
    store, key_file = environ.get("FARANDOLE_STORE", ""), environ.get("FARANDOLE_KEY_FILE", "")
    for name, value in (("FARANDOLE_STORE", store), ("FARANDOLE_KEY_FILE", key_file)):
        if not value:
            raise ValueError(
                f"{name} is not set, but FARANDOLE_SIZE={world.size} needs it. {OURS} sets both; start the job with it"
            )
    if not store.startswith(("unix:", "tcp:")):
        raise ValueError(
            f"FARANDOLE_STORE={store!r} cannot be right: it must begin with unix: or tcp:. {OURS} sets this variable"
        )
    return replace(world, store=store, key_file=key_file)


def _others_rendezvous(environ: Mapping[str, str], world: World) -> World:
    if world.size == 1:
        return world
    place = replace(world, key_file=_key_file(environ, world.launcher))
    if world.local_size != world.size:
        return place
    digest = hashlib.sha256("\0".join(_identity(environ, world)).encode()).hexdigest()[:24]
    return replace(place, store=f"unix:farandole-{os.getuid()}-{digest}")


def key_file(launcher: str) -> str:
    """FARANDOLE_KEY_FILE, else ""; ValueError where FARANDOLE_REQUIRE_KEY asks for it, which `launcher` hands out."""
    return _key_file(os.environ, launcher)


def _key_file(environ: Mapping[str, str], launcher: str) -> str:
    path = environ.get("FARANDOLE_KEY_FILE", "")
    if environ.get("FARANDOLE_REQUIRE_KEY", "0") not in ("", "0") and not path:
        raise ValueError(
            f"FARANDOLE_REQUIRE_KEY={environ['FARANDOLE_REQUIRE_KEY']!r} asks for a job key, which {launcher} "
            "does not hand out. Start the job with `farandole run`, or give FARANDOLE_KEY_FILE"
        )
    return path


def _identity(environ: Mapping[str, str], world: World) -> list[str]:
    """Words that all ranks of the job share and that no other job of this user on this host has."""
    if "FARANDOLE_JOB_ID" in environ:
        return ["job", environ["FARANDOLE_JOB_ID"]]
    if world.launcher == _TORCHRUN.title:
        names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
        return ["torchrun", *(environ.get(name, "") for name in names)]
    if world.launcher == _OPEN_MPI.title:
        for name in ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"):
            if name in environ:
                return ["openmpi", environ[name]]
    if world.launcher == _SRUN.title:
        return ["srun", environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_STEP_ID", "")]
    return ["parent", *_launching_process()]


def _launching_process() -> tuple[str, str]:
    """Process id and start time of the launcher's process on this host, the ancestor that all ranks share."""
    direct = ancestor = os.getppid()
    while ancestor > 1:
        name, parent, start = _process(ancestor)
        if name.startswith("hydra_pmi_prox"):  # a shell may stand between it and us
            return str(ancestor), start
        ancestor = parent
    return str(direct), _process(direct)[2]


def _process(pid: int) -> tuple[str, int, str]:
    """Name, parent and start time (clock ticks after boot) of a process."""
    name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    fields = rest.split()
    return name, int(fields[1]), fields[19]


@contextmanager
def environment_default(name: str, value: str) -> Iterator[None]:
    """The variable has this value inside, where the user has set none: for libraries that read it while they load."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
