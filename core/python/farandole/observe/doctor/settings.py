"""FARANDOLE_* variables that are set, and who starts the ranks: what the job's key is as secret as."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from farandole._start import other_launchers, slurm
from farandole.launch.local import KEY_BYTES
from farandole.observe.doctor.finding import Finding, fail, ok, warn

_PREFIX = "FARANDOLE_"
_OPTIONS = "FARANDOLE_RUN_"  # before the name of an option of `farandole run`, which judges these itself
_LIKELY = 0.75  # from here on a name is taken for a slip of the finger
TEXT = ("any text",)


@dataclass(frozen=True)
class Number:
    """The value of a variable that holds a number."""

    of: str
    most: float
    least: int = 0


PLACE, BYTES, SECONDS = Number("ranks", 2**31), Number("bytes", 1e18), Number("seconds", 1e9)

# name without prefix -> the words it may hold, or its number, or TEXT; a test compares the names with who reads them.
KNOWN: dict[str, tuple[str, ...] | Number] = {
    "ADDRESS": TEXT,
    "SSH": TEXT,
    "ALGORITHM": ("auto", "direct", "ring", "tree", "exchange"),
    "ARENAS": ("0", "1"),
    "BACKEND": TEXT,
    "CHECK_PARAMETERS": ("0", "1"),
    "COMMITS": TEXT,
    "CROSS_RANK": PLACE,
    "CROSS_SIZE": PLACE,
    "CUDA_DRIVER": TEXT,
    "DRIVER_LOG": ("0", "1"),
    "ELASTIC_TIMEOUT": SECONDS,
    "FAILPOINTS": TEXT,
    "FLIGHT_RECORDER": TEXT,
    "FUSION_THRESHOLD": BYTES,
    "GLOO_LIB": TEXT,
    "GRACE_SECONDS": Number("seconds", 86400),
    "JOB_ID": TEXT,
    "JOINS": PLACE,
    "KEY_FILE": TEXT,
    "LOCAL_RANK": PLACE,
    "LOCAL_SIZE": PLACE,
    "LOG_LEVEL": ("error", "warning", "info", "debug"),
    "MEMBERSHIP": TEXT,
    "MPI_LIB": TEXT,
    "NCCL_LIB": TEXT,
    "NCCL_NETWORK": ("0", "1"),
    "NODE": TEXT,
    "NVTX": TEXT,
    "ORDER": ("fixed", "any"),
    "RANK": PLACE,
    "RAY_FOLDER": TEXT,
    "RAY_PYTHON": TEXT,
    "RAY_SOCKET": TEXT,
    "REQUIRE_KEY": TEXT,
    "SILENCE_TIMEOUT": Number("seconds", 86400, 1),
    "SIZE": PLACE,
    "START_TIMEOUT": SECONDS,
    "STATUS_FILE": TEXT,
    "STORE": TEXT,
    "TEST_LAUNCHER": TEXT,
    "TIMELINE": TEXT,
    "TIMELINE_MARK_CYCLES": ("0", "1"),
    "TIMEOUT": SECONDS,
    "WARN_AFTER": SECONDS,
}

# launcher -> the variable by which a rank of it is known
_LAUNCHERS = {
    "farandole run": "FARANDOLE_RANK",
    "torchrun": "TORCHELASTIC_RUN_ID",
    "Open MPI's mpirun": "OMPI_COMM_WORLD_RANK",
    "MPICH's mpiexec": "MPI_LOCALRANKID",  # PMI_RANK is set by srun, too
}


@dataclass(frozen=True)
class Facts:
    """The variables of the environment."""

    variables: Mapping[str, str]  # ours
    launcher: str  # "" where no rank of a launcher runs this
    refusal: str  # what init() would say here; "" where it would not
    doubt: str  # what it would warn of
    key_file_error: str  # "" where FARANDOLE_KEY_FILE is not set or names a good file


def gather(environment: Mapping[str, str]) -> Facts:
    """Read the environment, and the file that FARANDOLE_KEY_FILE names."""
    launcher = next((title for title, name in _LAUNCHERS.items() if name in environment), "")
    if not launcher and environment.get(slurm.NUM_TASKS, "1") != "1":
        launcher = slurm.TITLE
    return Facts(
        variables={name: value for name, value in environment.items() if name.startswith(_PREFIX)},
        launcher=launcher,
        refusal="" if launcher else other_launchers.one_of_several(environment),
        doubt="" if launcher else other_launchers.perhaps_one_of_several(environment),
        key_file_error=key_file_error(environment.get("FARANDOLE_KEY_FILE", "")),
    )


def key_file_error(path: str) -> str:
    """Why this file cannot hold the job's key; "" if it can, or `path` is empty."""
    if not path:
        return ""
    try:
        facts = os.stat(path)
        with open(path, "rb") as file:
            size = len(file.read(KEY_BYTES + 1))
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    if size != KEY_BYTES:
        return f"it must hold {KEY_BYTES} bytes"
    if stat.S_IMODE(facts.st_mode) & 0o077 and not path.startswith("/proc/"):
        return "other users may open it"
    return ""


def judge(facts: Facts) -> list[Finding]:
    """Variables -> findings."""
    found = [_judge_variable(name, value) for name, value in sorted(facts.variables.items())]
    if not found:
        found = [ok("settings", "no FARANDOLE_ variable is set: all settings are the defaults")]
    return [*found, _launcher(facts), _key(facts)]


def likely_slips(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that is nearly one of ours. Names of no likeness may be the user's own."""
    ours = [name for name in environment if name.startswith(_PREFIX) and not name.startswith(_OPTIONS)]
    unknown = [name for name in ours if name.removeprefix(_PREFIX) not in KNOWN]
    likely = [(name, _nearest(name, cutoff=_LIKELY)) for name in sorted(unknown)]
    return [f"{name} is set, but nothing reads it; did you mean {near}?" for name, near in likely if near]


def _nearest(name: str, cutoff: float) -> str:
    import difflib  # 5 ms that a start without slips does not pay

    near = difflib.get_close_matches(name.removeprefix(_PREFIX), list(KNOWN), n=1, cutoff=cutoff)
    return _PREFIX + near[0] if near else ""


def _judge_variable(name: str, value: str) -> Finding:
    known = TEXT if name.startswith(_OPTIONS) else KNOWN.get(name.removeprefix(_PREFIX))
    if known is None:
        mend = f"Did you mean {_nearest(name, cutoff=0.0)}? Else unset it."
        return warn("settings", f"{name} is set, but nothing reads it", mend)
    text = f"{name}={value}" if known is not TEXT else f"{name} is set"
    if value == "" or known is TEXT or _is_understood(value, known):
        return ok("settings", text)
    return fail("settings", f"{text} is not understood", f"Unset it, or set it to {_words(known)}.")


def _is_understood(value: str, known: tuple[str, ...] | Number) -> bool:
    if not isinstance(known, Number):
        return value in known
    try:
        return known.least <= float(value) <= known.most
    except ValueError:
        return False


def _words(known: tuple[str, ...] | Number) -> str:
    if isinstance(known, Number):
        return f"a number of {known.of} from {known.least} to {known.most:g}, without a unit"
    return known[0] if len(known) == 1 else f"{', '.join(known[:-1])} or {known[-1]}"


def _launcher(facts: Facts) -> Finding:
    check = "launcher"
    if facts.refusal:
        return fail(
            check, "this process is one of several ranks, and init() refuses to make each of them alone", facts.refusal
        )
    if facts.doubt:
        return warn(check, "this process may be one of several ranks, and init() makes it a world of one", facts.doubt)
    return ok(
        check, f"this process is a rank of {facts.launcher}" if facts.launcher else "this process is no rank of a job"
    )


def _key(facts: Facts) -> Finding:
    check = "job key"
    if facts.key_file_error:
        path = facts.variables.get("FARANDOLE_KEY_FILE", "")
        return fail(
            check,
            f"FARANDOLE_KEY_FILE={path} cannot be used: {facts.key_file_error}",
            f"Make one: (umask 077; head -c {KEY_BYTES} /dev/urandom > key)",
        )
    if facts.variables.get("FARANDOLE_KEY_FILE"):
        return ok(check, "FARANDOLE_KEY_FILE: as secret as that file")
    if facts.launcher in ("", "farandole run"):
        who = "" if facts.launcher else "no launcher's variables are here; "
        return ok(
            check, f"{who}`farandole run` makes a new key for each job, in memory: as secret as your user account"
        )
    if facts.variables.get("FARANDOLE_REQUIRE_KEY", "0") not in ("", "0"):
        return fail(
            check,
            f"{facts.launcher} hands out no key, and FARANDOLE_REQUIRE_KEY asks for one",
            "Start the job with `farandole run`, or let FARANDOLE_KEY_FILE name 32 bytes that only you can read.",
        )
    over_hosts = ""
    if facts.launcher == slurm.TITLE:
        over_hosts = ", and over several hosts through Slurm's PMI, sealed by MUNGE where the hosts have it"
    elif "mpi" in facts.launcher:
        over_hosts = ", and over several hosts through MPI: as secret as its connections"
    return ok(
        check,
        f"{facts.launcher}: rank 0 hands a new key out over a Unix socket, where the kernel vouches for the user: as "
        f"secret as your user account{over_hosts}",
    )
