"""Options and settings of horovodrun -> their counterparts here. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_NOTHING = "leave it out, there is nothing to set"
_OF_MPIRUN = "it belongs to mpirun, which starts ranks, too: mpirun ... python train.py"

_ANSWERS = {
    "--gloo": "leave it out, no MPI is needed; --backend gloo lets Gloo carry the operations",
    "--mpi": "start the ranks with mpirun -np N python train.py; nothing in the script changes",
    "--jsrun": "start the ranks of one host with farandole run -np N inside the job",
    "--check-build -cb": "farandole doctor, which says what is there and works",
    "-v": "--version",
    "--output-filename": "--output-dir DIR",
    "--prefix-output-with-timestamp -prefix-timestamp --log-with-timestamp": "--timestamp",
    "--log-without-timestamp --log-hide-timestamp --no-log-hide-timestamp": "leave it out, or give --timestamp",
    "--network-interface": "--network-interfaces NAME,...",
    "--fusion-threshold-mb": "set FARANDOLE_FUSION_THRESHOLD, in bytes",
    "--stall-check-warning-time-seconds": "set FARANDOLE_WARN_AFTER, in seconds",
    "--stall-check-shutdown-time-seconds": "set FARANDOLE_TIMEOUT, in seconds; 0: never",
    "--no-stall-check": "set FARANDOLE_WARN_AFTER to a large number of seconds",
    "--log-level": "set FARANDOLE_LOG_LEVEL to error, warning, info or debug",
    "--gloo-timeout-seconds": "--start-timeout SECONDS, or set FARANDOLE_TIMEOUT",
    "--mpi-args --binding-args --tcp --mpi-threads-disable --no-mpi-threads-disable": _OF_MPIRUN,
    "--stall-check --disable-cache --cycle-time-ms --cache-capacity": _NOTHING,
    "--num-nccl-streams --thread-affinity": _NOTHING,
    "--hierarchical-allreduce --no-hierarchical-allreduce --torus-allreduce --no-torus-allreduce": _NOTHING,
    "--hierarchical-allgather --no-hierarchical-allgather --autotune --no-autotune --autotune-log-file": _NOTHING,
    "--autotune-warmup-samples --autotune-steps-per-sample --autotune-bayes-opt-max-samples": _NOTHING,
    "--autotune-gaussian-process-noise": _NOTHING,
}
_FLAGS = {flag: answer for flags, answer in _ANSWERS.items() for flag in flags.split()}

# Horovod's setting -> the one of ours with its meaning, whose values may have another form; the first of two wins.
COUNTERPARTS = {
    "HOROVOD_FUSION_THRESHOLD": "FARANDOLE_FUSION_THRESHOLD",
    "HOROVOD_STALL_CHECK_DISABLE": "FARANDOLE_WARN_AFTER",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "FARANDOLE_WARN_AFTER",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "FARANDOLE_TIMEOUT",
    "HOROVOD_LOG_LEVEL": "FARANDOLE_LOG_LEVEL",
    "HOROVOD_TIMELINE": "FARANDOLE_TIMELINE",
    "HOROVOD_TIMELINE_MARK_CYCLES": "FARANDOLE_TIMELINE_MARK_CYCLES",
    "HOROVOD_START_TIMEOUT": "FARANDOLE_START_TIMEOUT",
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "FARANDOLE_START_TIMEOUT",
    "HOROVOD_ELASTIC_TIMEOUT": "FARANDOLE_ELASTIC_TIMEOUT",
}
_SETTINGS = {
    **COUNTERPARTS,
    "HOROVOD_FUSION_THRESHOLD": "FARANDOLE_FUSION_THRESHOLD, in bytes",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "FARANDOLE_WARN_AFTER, in seconds",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "FARANDOLE_TIMEOUT, in seconds",
    "HOROVOD_STALL_CHECK_DISABLE": "FARANDOLE_WARN_AFTER, a large number of seconds",
    "HOROVOD_TIMELINE": "farandole run --timeline-filename FILE",
    "HOROVOD_TIMELINE_MARK_CYCLES": "farandole run --timeline-mark-cycles",
    "HOROVOD_START_TIMEOUT": "farandole run --start-timeout SECONDS",
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "farandole run --start-timeout SECONDS",
    "HOROVOD_GLOO_IFACE": "farandole run --network-interfaces NAME,...",
    "HOROVOD_CPU_OPERATIONS": "farandole run --backend NAME",
    "HOROVOD_CONTROLLER": "nothing: no MPI is needed",
}


def about_flags(arguments: Iterable[str], with_value: frozenset[str]) -> str:
    """A sentence about the first of horovodrun's flags among the options before a command, "" where there is none.

    Args:
        arguments: as typed.
        with_value: the options of ours after which a value comes.
    """
    words = iter(arguments)
    for word in words:
        flag = word.partition("=")[0]
        if not flag.startswith("-") or flag in ("-", "--"):
            return ""
        if answer := _FLAGS.get(flag):
            return f"{flag} is an option of horovodrun; here: {answer}."
        if word in with_value:
            next(words, None)
    return ""


def about_settings(environment: Mapping[str, str]) -> str:
    """A sentence about those of Horovod's settings of which Farandole's own is not set; "" where there is none."""
    open_ones = [name for name in sorted(_SETTINGS) if COUNTERPARTS.get(name) not in environment]
    found = [f"{name} ({_SETTINGS[name]})" for name in open_ones if environment.get(name)]
    only = "only programs that import horovod read Horovod's settings; here they are in brackets"
    return f"{only}: {'; '.join(found)}." if found else ""
