"""Finds this process's rank in the environment. No other Python file of this package reads the environment.

A launcher (`farandole run`, torchrun, mpirun) tells each process its place through variables. The first launcher of
the table below whose variables are set counts. Without any, the process is a world of one rank.
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
    """A process's place, and where it meets its peers."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among the processes of this host
    local_size: int = 1
    cross_rank: int = 0  # among the processes with this local_rank, one per host
    cross_size: int = 1
    store: str = ""  # "unix:<abstract name>" or "tcp:<host>:<port>"; "" in a world of one, or if MPI must exchange it
    key_file: str = ""  # path of the job's 32 secret bytes; "" if the key must be exchanged first
    launcher: str = ""  # that set the variables; "" for none
    joins: int = -1  # number of this process in a running elastic job that it joins; its place is provisional then


@dataclass(frozen=True)
class _Launcher:
    """The variables of one launcher. An empty name means that it has no such variable, and the job is on one host."""

    title: str
    markers: tuple[tuple[str, ...], ...]  # the launcher counts if all variables of one of these are set
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
    markers=(("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),),  # Slurm also sets the first two
    rank="PMI_RANK",
    size="PMI_SIZE",
    local_rank="MPI_LOCALRANKID",
    local_size="MPI_LOCALNRANKS",
)
# srun comes last, because it may start mpirun or torchrun.
_SRUN = _Launcher(
    title=slurm.TITLE,
    markers=((slurm.NUM_TASKS, "SLURM_PROCID", "SLURM_STEP_ID"),),
    rank="SLURM_PROCID",
    size=slurm.NUM_TASKS,
    local_rank="SLURM_LOCALID",
    local_size=slurm.TASKS_PER_NODE,
)
_LAUNCHERS = (_FARANDOLE, _TORCHRUN, _OPEN_MPI, _MPICH, _SRUN)
# Backends whose library is in a package of the index: the package's module, and the file in its folder.
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
    """Return this process's place according to the environment: a world of one if no launcher is found.

    Raises:
        ValueError: variables are missing, are not numbers or contradict each other (the message has their names, values
            and launcher); torchrun started the job on several hosts; a required key file is missing; or the process is
            one of several of a launcher that Farandole does not read.
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
    """Return whether a launcher has started this process as one of several."""
    try:
        found = _started(os.environ)
    except ValueError:
        return True
    return found is not None and found.size > 1


def doubt(world: World) -> str:
    """Return a warning if the process is alone although variables suggest several, else ""."""
    if world.launcher:
        return ""
    return slurm.doubt(os.environ) or other_launchers.perhaps_one_of_several(os.environ)


def discover_or_given(rank: int, size: int, job: Callable[[], str]) -> World:
    """Return the place from a launcher's variables, or else from the arguments; see `given`.

    Raises ValueError like `discover` and `given`.
    """
    found = _started(os.environ)
    return found or (given(rank, size, job()) if size > 1 else World())


def given(rank: int, size: int, job: str) -> World:
    """Return the place of a rank of `size`. `job` is a name that is equal on all ranks, or "" on several hosts.

    Raises ValueError for impossible numbers, or if FARANDOLE_REQUIRE_KEY is set.
    """
    if not 0 <= rank < size:
        raise ValueError(f"rank {rank} of {size} cannot be right: 0 <= rank < size")
    on_this_host = (rank, size) if job else (0, 1)  # otherwise the ranks find out their hosts
    world = World(rank, size, *on_this_host, launcher=GIVEN)
    return _others_rendezvous({**os.environ, "FARANDOLE_JOB_ID": job}, world)


def without_launchers() -> dict[str, str]:
    """Return a copy of the environment without any launcher's variables, for new processes."""
    places = {
        name
        for each in _LAUNCHERS
        for name in (each.rank, each.size, each.local_rank, each.local_size, each.cross_rank, each.cross_size)
    }
    known = places | _RENDEZVOUS | other_launchers.variables() | {*horovod_variables(vars(World()), "")}
    return {name: value for name, value in os.environ.items() if not name.startswith(_PREFIXES) and name not in known}


def tell_horovods_readers(world: World) -> None:
    """Set HOROVOD_RANK and the like, if a launcher or the program has told this process its place.

    They are also set if an earlier world of this process, or of its parent, has set them.
    """
    if world.launcher or MARK in os.environ:
        os.environ.update(horovod_variables(vars(world), os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname()))


def start_timeout_s() -> float:
    """Return FARANDOLE_START_TIMEOUT, the seconds that init waits for the other ranks. Raises ValueError."""
    return _seconds("FARANDOLE_START_TIMEOUT", "120")


def silence_timeout_s() -> float:
    """Return FARANDOLE_SILENCE_TIMEOUT, the seconds after which a silent host counts as lost. Raises ValueError."""
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
    """Return FARANDOLE_MEMBERSHIP, the socket of the launcher that decides the epochs of an elastic job, or ""."""
    return os.environ.get("FARANDOLE_MEMBERSHIP", "")


def commits() -> str:
    """Return FARANDOLE_COMMITS, the folder for the commits of an elastic job, or ""."""
    return os.environ.get("FARANDOLE_COMMITS", "")


def address() -> str:
    """Return FARANDOLE_ADDRESS, the address at which other hosts reach this rank, or ""."""
    return os.environ.get("FARANDOLE_ADDRESS", "")


def pmi2() -> tuple[int, str] | None:
    """Return the descriptor of Slurm's PMI-2 socket and the name of the step, or None without PMI-2."""
    descriptor, job = (os.environ.get(name, "") for name in ("PMI_FD", "PMI_JOBID"))
    return (int(descriptor), job) if descriptor.isdecimal() and job else None


def status_file() -> str:
    """Return FARANDOLE_STATUS_FILE, the path of the ranks' records, or "" without `farandole run`."""
    return os.environ.get("FARANDOLE_STATUS_FILE", "")


def given_key_file() -> str:
    """Return FARANDOLE_KEY_FILE, the path of the job's key, or "". Unlike `key_file`, this never raises."""
    return os.environ.get("FARANDOLE_KEY_FILE", "")


def flight_recorder() -> str:
    """Return the folder for flight recorders, by default one of this user, or "0" for none."""
    return os.environ.get("FARANDOLE_FLIGHT_RECORDER", "")


def log_level() -> str:
    """Return the level of FARANDOLE_LOG_LEVEL, as Python's logging names it; WARNING by default."""
    level = os.environ.get("FARANDOLE_LOG_LEVEL", "").upper()
    return level if level in ("ERROR", "INFO", "DEBUG") else "WARNING"


def shows_details() -> bool:
    """Return whether to show tracebacks that repeat another rank's failure: FARANDOLE_LOG_LEVEL is info or debug."""
    return log_level() in ("INFO", "DEBUG")


def checks_parameters() -> bool:
    """Return whether the ranks compare their parameters in the first step: FARANDOLE_CHECK_PARAMETERS."""
    return _switch("FARANDOLE_CHECK_PARAMETERS", "1")


def backends() -> list[str]:
    """Return the list of FARANDOLE_BACKEND, which is empty if the core decides."""
    return [name.strip() for name in os.environ.get("FARANDOLE_BACKEND", "").split(",") if name.strip()]


def test_launcher(ranks: int) -> list[str]:
    """Return the command that starts the ranks of tests (FARANDOLE_TEST_LAUNCHER), or [] for our launcher."""
    return [word.format(ranks=ranks) for word in shlex.split(os.environ.get("FARANDOLE_TEST_LAUNCHER", ""))]


def find_libraries(wanted: Sequence[str] | None = None) -> None:
    """Set FARANDOLE_NCCL_LIB and FARANDOLE_GLOO_LIB to the libraries of installed packages.

    The packages are nvidia-nccl-cu12 or -cu13, and farandole-gloo. Variables that are already set stay, and only those
    of the backends in `wanted` are set, by default those of FARANDOLE_BACKEND.
    """
    for backend, (package, file) in _PACKAGES.items():
        variable = f"FARANDOLE_{backend.upper()}_LIB"
        if backend in (backends() if wanted is None else wanted) and not os.environ.get(variable):
            path = next((folder / file for folder in _folders_of(package) if (folder / file).is_file()), None)
            if path:
                os.environ[variable] = str(path)


def _folders_of(package: str) -> list[Path]:
    """Return the folders of a package without importing it, or none if it is not installed."""
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # its parent package is missing
        return []
    return [Path(folder) for folder in (found.submodule_search_locations if found else None) or ()]


def cuda_driver() -> str:
    """Return FARANDOLE_CUDA_DRIVER, the name or path of the CUDA driver's library."""
    return os.environ.get("FARANDOLE_CUDA_DRIVER") or "libcuda.so.1"


def timeline() -> str:
    """Return FARANDOLE_TIMELINE, the file to record a timeline in from `init` on, or ""."""
    return os.environ.get("FARANDOLE_TIMELINE", "")


def marks_cycles() -> bool:
    """Return whether the timeline marks what was negotiated together: FARANDOLE_TIMELINE_MARK_CYCLES."""
    return _switch("FARANDOLE_TIMELINE_MARK_CYCLES", "0")


def _switch(name: str, default: str) -> bool:
    """Return whether a variable is 1. Raises ValueError for anything but 0 and 1."""
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
    """Return the place under launchers before torchrun, which set only LOCAL_RANK; on one host it equals RANK."""
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
    """Return FARANDOLE_KEY_FILE, or "". Raises ValueError if FARANDOLE_REQUIRE_KEY demands a key from `launcher`."""
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
    """Return words that all ranks of the job share and no other job of this user on this host has."""
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
    """Return process id and start time of the launcher's process on this host, the common ancestor of all ranks."""
    direct = ancestor = os.getppid()
    while ancestor > 1:
        name, parent, start = _process(ancestor)
        if name.startswith("hydra_pmi_prox"):  # a shell may be between it and this process
            return str(ancestor), start
        ancestor = parent
    return str(direct), _process(direct)[2]


def _process(pid: int) -> tuple[str, int, str]:
    """Return name, parent and start time (in clock ticks after boot) of a process."""
    name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    fields = rest.split()
    return name, int(fields[1]), fields[19]


@contextmanager
def environment_default(name: str, value: str) -> Iterator[None]:
    """Set a variable inside the context, unless the user has set it, for libraries that read it while they load."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
