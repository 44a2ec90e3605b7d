"""The options of horovodrun 0.28.1, and what each is here. Pure."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

_AUTOTUNE = "there is no size that a run would have to tune"
_NO_CACHE = "no result of a check is kept, so there is none to leave out"
_MPI = "the ranks are started without MPI; to have its network, start the program by mpirun -np N python train.py"
_NO_CYCLES = "there is no cycle and no cache to size: operations begin when all ranks have called them"
_PATHS = "which path an operation takes depends on its size and the hosts, and is chosen for each"
_STREAMS = "threads and streams are as many as work at the same time"


@dataclass(frozen=True)
class Option:
    """One option: exactly one of `passed_as`, `setting`, `ignored` and `handled` says what becomes of it."""

    names: str
    metavar: str = ""  # of its value; "" where it has none
    config: str = ""  # its key in a file of --config-file
    passed_as: str = ""  # an option of `farandole run` with the same meaning
    setting: str = ""  # a variable of Horovod's, which _environment.py translates
    value: str = "1"  # of that variable, for an option without a value
    ignored: str = ""  # why it has no effect
    handled: str = ""  # what launch.py does with it; for --help

    @property
    def key(self) -> str:
        """The attribute of the parsed arguments."""
        longest = max(self.names.split(), key=len)
        return longest.lstrip("-").replace("-", "_")

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Declare it; an option that was not typed is not among the parsed arguments."""
        text = self.handled or self.ignored or self.setting or f"as farandole run {self.passed_as}"
        names = self.names.split()
        if not self.metavar:
            parser.add_argument(*names, dest=self.key, action="store_true", default=argparse.SUPPRESS, help=text)
        else:
            count = 2 if " " in self.metavar else None
            metavar = tuple(self.metavar.split()) if count else self.metavar
            add = {"nargs": count, "metavar": metavar, "default": argparse.SUPPRESS, "help": text}
            parser.add_argument(*names, dest=self.key, **add)  # type: ignore[arg-type]


OPTIONS = (
    Option("-v --version", handled="print the version"),
    Option("-cb --check-build", handled="print what works in this installation"),
    Option("-np --num-proc", "N", passed_as="-np"),
    Option("-H --hosts", "HOST:SLOTS,...", passed_as="-H"),
    Option("-hostfile --hostfile", "FILE", passed_as="--hostfile"),
    Option("--config-file", "FILE", handled="read options from a YAML file; those that are typed come first"),
    Option("--start-timeout", "SECONDS", passed_as="--start-timeout"),
    Option("--output-filename", "DIR", passed_as="--output-dir"),
    Option("-prefix-timestamp --prefix-output-with-timestamp", passed_as="--timestamp"),
    Option("--verbose", passed_as="--verbose"),
    Option("--timeline-filename", "FILE", "timeline.filename", passed_as="--timeline-filename"),
    Option("--timeline-mark-cycles", "", "timeline.mark_cycles", passed_as="--timeline-mark-cycles"),
    Option("--no-timeline-mark-cycles", ignored="nothing is marked unless --timeline-mark-cycles says so"),
    Option("--fusion-threshold-mb", "MB", "params.fusion_threshold_mb", setting="HOROVOD_FUSION_THRESHOLD"),
    Option("--no-stall-check", setting="HOROVOD_STALL_CHECK_DISABLE"),
    Option("--stall-check", setting="HOROVOD_STALL_CHECK_DISABLE", value="0"),
    Option(
        "--stall-check-warning-time-seconds",
        "SECONDS",
        "stall_check.warning_time_seconds",
        setting="HOROVOD_STALL_CHECK_TIME_SECONDS",
    ),
    Option(
        "--stall-check-shutdown-time-seconds",
        "SECONDS",
        "stall_check.shutdown_time_seconds",
        setting="HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
    ),
    Option("--log-level", "LEVEL", "logging.level", setting="HOROVOD_LOG_LEVEL"),
    Option(
        "--gloo-timeout-seconds",
        "SECONDS",
        "library_options.gloo_timeout_seconds",
        setting="HOROVOD_GLOO_TIMEOUT_SECONDS",
    ),
    Option("--gloo", handled="as without it: no MPI is needed"),
    Option("--mpi", ignored=_MPI),
    Option("--jsrun", ignored=_MPI),
    Option("--mpi-args", "ARGS", ignored=_MPI),
    Option("--binding-args", "ARGS", ignored=_MPI),
    Option("--tcp", ignored=_MPI),
    Option("--mpi-threads-disable", "", "library_options.mpi_threads_disable", ignored=_MPI),
    Option("--no-mpi-threads-disable", ignored=_MPI),
    Option("-p --ssh-port", "PORT", passed_as="--ssh-port"),
    Option("-i --ssh-identity-file", "FILE", passed_as="--ssh-identity-file"),
    Option("--disable-cache", ignored=_NO_CACHE),
    Option("--network-interface", "NAMES", passed_as="--network-interfaces"),
    Option("--network-interfaces", "NAMES", passed_as="--network-interfaces"),
    Option("--cycle-time-ms", "MS", "params.cycle_time_ms", ignored=_NO_CYCLES),
    Option("--cache-capacity", "N", "params.cache_capacity", ignored=_NO_CYCLES),
    Option("--hierarchical-allreduce", "", "params.hierarchical_allreduce", ignored=_PATHS),
    Option("--no-hierarchical-allreduce", ignored=_PATHS),
    Option("--hierarchical-allgather", "", "params.hierarchical_allgather", ignored=_PATHS),
    Option("--no-hierarchical-allgather", ignored=_PATHS),
    Option("--torus-allreduce", "", "params.torus_allreduce", ignored=_PATHS),
    Option("--no-torus-allreduce", ignored=_PATHS),
    Option("--autotune", "", "autotune.enabled", ignored=_AUTOTUNE),
    Option("--no-autotune", ignored=_AUTOTUNE),
    Option("--autotune-log-file", "FILE", "autotune.log_file", ignored=_AUTOTUNE),
    Option("--autotune-warmup-samples", "N", "autotune.warmup_samples", ignored=_AUTOTUNE),
    Option("--autotune-steps-per-sample", "N", "autotune.steps_per_sample", ignored=_AUTOTUNE),
    Option("--autotune-bayes-opt-max-samples", "N", "autotune.bayes_opt_max_samples", ignored=_AUTOTUNE),
    Option("--autotune-gaussian-process-noise", "X", "autotune.gaussian_process_noise", ignored=_AUTOTUNE),
    Option("--num-nccl-streams", "N", "library_options.num_nccl_streams", ignored=_STREAMS),
    Option("--thread-affinity", "N", "library_options.thread_affinity", ignored=_STREAMS),
    Option("--log-with-timestamp", "", "logging.with_timestamp", passed_as="--timestamp"),
    Option("--log-without-timestamp", ignored="lines have no time unless --log-with-timestamp says so"),
    Option("--log-hide-timestamp", "", "logging.hide_timestamp", ignored="lines have no time by themselves"),
    Option("--no-log-hide-timestamp", passed_as="--timestamp"),
    Option("--host-discovery-script", "EXE", passed_as="--host-discovery-script"),
    Option("--min-np --min-num-proc", "N", passed_as="--min-np"),
    Option("--max-np --max-num-proc", "N", passed_as="--max-np"),
    Option("--slots-per-host", "N", passed_as="--slots-per-host"),
    Option("--elastic-timeout", "SECONDS", passed_as="--elastic-timeout"),
    Option("--reset-limit", "N", passed_as="--reset-limit"),
    Option("--blacklist-cooldown-range", "MIN MAX", passed_as="--blacklist-cooldown-range"),
)
