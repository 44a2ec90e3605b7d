"""The options of horovodrun 0.28.1, and what each is here. Pure."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

_AUTOTUNE = "there is no size that a run would have to tune"
_NO_CACHE = "no result of a check is kept, so there is none to leave out"
_MPI_ONLY = "it is for ranks that --mpi starts"
_THREADS = "Farandole chooses how it calls MPI"
_TCP = "ranks use TCP between hosts, and shared memory on one"
_NO_CYCLES = "there is no cycle and no cache to size: operations begin when all ranks have called them"
_PATHS = "which path an operation takes depends on its size and the hosts, and is chosen for each"
_STREAMS = "threads and streams are as many as work at the same time"

_WHOLE, _NUMBER = "a whole number", "a number"
_UNITS = {"SECONDS": " of seconds", "MB": " of MB", "MS": " of milliseconds", "X": "", "MIN MAX": " of seconds"}
_MOST = {"X": 1.0, "PORT": 65535.0, "MB": 1e12}
_LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")


# Attributes of the parsed options that are called otherwise in Horovod.
HOROVODS_NAMES = {"nics": "network_interfaces", "slots": "slots_per_host", "use_gloo": "gloo", "use_mpi": "mpi"}
HOROVODS_NAMES |= {"use_jsrun": "jsrun", "cooldown_range": "blacklist_cooldown_range", "np": "num_proc"}
HOROVODS_NAMES |= {"min_np": "min_num_proc", "max_np": "max_num_proc"}


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
    least: int = 0  # of its value, where that is a number

    @property
    def key(self) -> str:
        """The attribute of the parsed arguments."""
        longest = max(self.names.split(), key=len)
        return longest.lstrip("-").replace("-", "_")

    def text_of(self, value: object) -> str | list[str]:
        """A value that a program has set, as it would be typed. Raises ValueError."""
        texts = [str(each) for each in value] if isinstance(value, list | tuple | set) else [str(value)]
        try:
            texts = [self.check(each) for each in texts]
        except ValueError as error:
            raise ValueError(f"{self.key} {error}") from None
        return texts if " " in self.metavar else ",".join(texts)

    def check(self, value: str) -> str:
        """The value as it is. Raises ValueError, with what it must be."""
        if self.metavar == "LEVEL":
            if value.upper() not in _LEVELS:
                raise ValueError(f"must be one of {', '.join(_LEVELS)}, not {value!r}")
        elif self.metavar in ("N", "PORT"):
            if not (value == "auto" and self.key == "num_proc"):
                self._check_number(value, _WHOLE)
        elif self.metavar in _UNITS:
            self._check_number(value, _NUMBER + _UNITS[self.metavar])
        return value

    def _check_number(self, text: str, kind: str) -> None:
        most = _MOST.get(self.metavar, 1e9)
        try:
            number = int(text) if kind == _WHOLE else float(text)
        except ValueError:
            number = float("nan")
        if not self.least <= number <= most:
            raise ValueError(f"must be {kind} from {self.least} to {most:g}, not {text!r}")

    def add_to(self, parser: argparse._ActionsContainer, help_of: Mapping[str, str]) -> None:
        """Declare it; an option that was not typed is not among the parsed arguments.

        `help_of`: the help of the options of `farandole run`.
        """
        text = self.handled or self.ignored or self.setting or help_of[self.passed_as]
        text = f"no effect: {text}" if self.ignored else f"sets {text}" if self.setting else text
        names, text = self.names.split(), text.replace("%", "%%")
        if not self.metavar:
            parser.add_argument(*names, dest=self.key, action="store_true", default=argparse.SUPPRESS, help=text)
        else:
            count = 2 if " " in self.metavar else None
            metavar = tuple(self.metavar.split()) if count else self.metavar
            add = {"nargs": count, "metavar": metavar, "default": argparse.SUPPRESS, "help": text, "type": self._parse}
            parser.add_argument(*names, dest=self.key, **add)  # type: ignore[arg-type]

    def _parse(self, value: str) -> str:
        try:
            return self.check(value)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None


OPTIONS = (
    Option("-v --version", handled="print the version"),
    Option("-cb --check-build", handled="print what works in this installation"),
    Option("-np --num-proc", "N", passed_as="-np", least=1),
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
    Option("--mpi", handled="start the ranks by the mpirun in PATH, whose variables they then have"),
    Option("--jsrun", handled="refused: leave it out, and the ranks start on the hosts of LSF's job"),
    Option("--mpi-args", "ARGS", ignored=_MPI_ONLY),
    Option("--binding-args", "ARGS", ignored=_MPI_ONLY),
    Option("--tcp", ignored=_TCP),
    Option("--mpi-threads-disable", "", "library_options.mpi_threads_disable", ignored=_THREADS),
    Option("--no-mpi-threads-disable", ignored=_THREADS),
    Option("-p --ssh-port", "PORT", passed_as="--ssh-port", least=1),
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
    Option("--min-np --min-num-proc", "N", least=1, passed_as="--min-np"),
    Option("--max-np --max-num-proc", "N", least=1, passed_as="--max-np"),
    Option("--slots-per-host", "N", least=1, passed_as="--slots-per-host"),
    Option("--elastic-timeout", "SECONDS", passed_as="--elastic-timeout"),
    Option("--reset-limit", "N", passed_as="--reset-limit"),
    Option("--blacklist-cooldown-range", "MIN MAX", passed_as="--blacklist-cooldown-range"),
)
