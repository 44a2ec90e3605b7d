"""Checks FARANDOLE_* variables, the launcher, and how secret the job's key is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from farandole._start import slurm
from farandole.launch.local import KEY_BYTES
from farandole.observe.doctor.finding import Finding, fail, ok, warn

_PREFIX = "FARANDOLE_"
_OPTIONS = "FARANDOLE_RUN_"  # prefix of the options of `farandole run`, which assesses these itself
_LIKELY = 0.75  # similarity from which a name counts as a misspelling
TEXT = ("any text",)


@dataclass(frozen=True)
class Number:
    """The value of a variable that holds a number."""

    of: str
    most: float
    least: int = 0


_SECONDS, _SWITCH = Number("seconds", 1e9), ("0", "1")

# Names without the prefix, and their words, their number, or TEXT for values that other code checks: init() checks the
# place of a rank. A test compares the names and words with the code that reads them.
KNOWN: dict[str, tuple[str, ...] | Number] = {
    **dict.fromkeys(
        (
            *("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "JOINS", "MEMBERSHIP"),
            *("STORE", "KEY_FILE", "REQUIRE_KEY", "STATUS_FILE", "ADDRESS", "JOB_ID", "NODE", "SSH", "TEST_LAUNCHER"),
            *("BACKEND", "CUDA_DRIVER", "GLOO_LIB", "MPI_LIB", "NCCL_LIB", "NVTX", "FAILPOINTS"),
            *("COMMITS", "COMMIT_TARGET", "FLIGHT_RECORDER", "TIMELINE", "RAY_SOCKET"),
        ),
        TEXT,
    ),
    **dict.fromkeys(("ELASTIC_TIMEOUT", "START_TIMEOUT", "TIMEOUT", "WARN_AFTER"), _SECONDS),
    **dict.fromkeys(("ARENAS", "CHECK_PARAMETERS", "DRIVER_LOG", "NCCL_NETWORK", "TIMELINE_MARK_CYCLES"), _SWITCH),
    "ALGORITHM": ("auto", "direct", "ring", "tree", "exchange"),
    "FUSION_THRESHOLD": Number("bytes", 1e18),
    "GRACE_SECONDS": Number("seconds", 86400),
    "LOG_LEVEL": ("error", "warning", "info", "debug"),
    "ORDER": ("fixed", "any"),
    "SILENCE_TIMEOUT": Number("seconds", 86400, 1),
    "TENSORFLOW_DEVICE": ("GPU", "CPU", "none"),
}


def check(environment: Mapping[str, str], place: Mapping[str, str] | None) -> list[Finding]:
    """Check the environment. `place` is what init() makes of it (_runtime/selftest.py); None: the core is broken."""
    variables = {name: value for name, value in environment.items() if name.startswith(_PREFIX)}
    found = [variable(name, value) for name, value in sorted(variables.items())]
    if not found:
        found = [ok("settings", "no FARANDOLE_ variable is set: all settings are the defaults")]
    if place is not None:
        found += [launcher(place), key(place, variables.get("FARANDOLE_KEY_FILE", ""))]
    return found


def likely_slips(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable that nearly has the name of one of ours. Others may be the user's own."""
    ours = [name for name in environment if name.startswith(_PREFIX) and not name.startswith(_OPTIONS)]
    unknown = [name for name in ours if name.removeprefix(_PREFIX) not in KNOWN]
    likely = [(name, _nearest(name, cutoff=_LIKELY)) for name in sorted(unknown)]
    return [f"{name} is set, but nothing reads it; did you mean {near}?" for name, near in likely if near]


def _nearest(name: str, cutoff: float) -> str:
    import difflib  # takes 5 ms, which a start without misspellings avoids

    near = difflib.get_close_matches(name.removeprefix(_PREFIX), list(KNOWN), n=1, cutoff=cutoff)
    return _PREFIX + near[0] if near else ""


def variable(name: str, value: str) -> Finding:
    """Assess the name and the value of a variable."""
    known = TEXT if name.startswith(_OPTIONS) else KNOWN.get(name.removeprefix(_PREFIX))
    if known is None:
        fix = f"Did you mean {_nearest(name, cutoff=0.0)}? Else unset it."
        return warn("settings", f"{name} is set, but nothing reads it", fix)
    text = f"{name}={value}" if known is not TEXT else f"{name} is set"
    if value == "" or known is TEXT or _is_understood(value, known):
        return ok("settings", text)
    return fail("settings", f"{text} is not understood", f"Unset it, or set it to {_expected(known)}.")


def _is_understood(value: str, known: tuple[str, ...] | Number) -> bool:
    if not isinstance(known, Number):
        return value in known
    try:
        return known.least <= float(value) <= known.most
    except ValueError:
        return False


def _expected(known: tuple[str, ...] | Number) -> str:
    if isinstance(known, Number):
        return f"a number of {known.of} from {known.least} to {known.most:g}, without a unit"
    return known[0] if len(known) == 1 else f"{', '.join(known[:-1])} or {known[-1]}"


def launcher(place: Mapping[str, str]) -> Finding:
    """Assess what init() makes of this environment."""
    check = "launcher"
    if place["refusal"]:
        return fail(check, "init() refuses to start in this environment", place["refusal"])
    if place["doubt"]:
        text = "this process may be one of several ranks, and init() makes it a world of one"
        return warn(check, text, place["doubt"])
    who = place["launcher"]
    return ok(check, f"this process is a rank of {who}" if who else "this process is no rank of a job")


def key(place: Mapping[str, str], path: str) -> Finding:
    """Assess the secrecy of the job's key. `path` is FARANDOLE_KEY_FILE."""
    check, who = "job key", place["launcher"]
    if place["key_error"]:
        return fail(check, place["key_error"], f"Make one: (umask 077; head -c {KEY_BYTES} /dev/urandom > key)")
    if path:
        return ok(check, "FARANDOLE_KEY_FILE: as secret as that file")
    if who in ("", "farandole run"):
        other = "" if who else "no launcher's variables are here; "
        text = f"{other}`farandole run` makes a new key for each job, in memory: as secret as your user account"
        return ok(check, text)
    over_hosts = ""
    if who == slurm.TITLE:
        over_hosts = ", and over several hosts through Slurm's PMI, sealed by MUNGE where the hosts have it"
    elif "mpi" in who:
        over_hosts = ", and over several hosts through MPI: as secret as its connections"
    return ok(
        check,
        f"{who}: rank 0 hands a new key out over a Unix socket, where the kernel vouches for the user: as secret as "
        f"your user account{over_hosts}",
    )
