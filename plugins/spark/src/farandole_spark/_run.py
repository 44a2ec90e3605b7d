"""The public function `run`: a function as ranks in the tasks of a barrier stage."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO, TypeVar

import farandole
from farandole.engine import Call, Hub, listed

from farandole_spark import _cluster, _slots
from farandole_spark._arguments import count_of
from farandole_spark._cluster import Cluster
from farandole_spark._stage import Stage
from farandole_spark._tasks import Plan

T = TypeVar("T")

START_SECONDS = 600.0
_POLL_SECONDS = 0.2
_TELL_SECONDS = 5.0  # between two sentences about the same wait
_REASON_SECONDS = 3.0  # Spark tells why an executor is gone some time after its connections end


def run(
    fn: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    *,
    start_timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    verbose: bool = False,
    spark: Any = None,
    driver_address: str | None = None,
    driver_port: int = 0,
    timestamp: bool = False,
    output_dir: str | None = None,
    network_interfaces: str | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
) -> list[T]:
    """Call a function on `num_proc` ranks in tasks of Spark, and return the results in the order of the ranks.

    Each rank is a new process beside the executor of a task; the function calls `init()`, as a script does. Functions
    and classes of modules that are not installed travel by value. Lines that ranks print appear here. An interrupt
    ends the stage and all processes.

    Args:
        fn: a function, also a lambda or one of a notebook's cell.
        args: its arguments.
        kwargs: its keyword arguments.
        num_proc: number of ranks, by default all slots of the cluster.
        start_timeout: seconds to wait for free slots and for the tasks, by default 600.
        env: variables for the ranks.
        verbose: report what is started, and when each rank ends.
        spark: the session, by default the active one.
        driver_address: of this process, as executors reach it; by default Spark's own.
        driver_port: to listen at, where a firewall lets only some through; by default any.
        timestamp: begin each line with the time of day.
        output_dir: a folder of the driver for a file of each rank's output.
        network_interfaces: those that executors use between them, `"eth0,ib0"`.
        stdout: where the lines of ranks appear, by default here.
        stderr: the same for what they write to stderr.

    Returns:
        What the function returned on each rank, rank 0 first.

    Raises:
        ArgumentError: more ranks than the cluster has slots, or another argument that cannot be.
        ArgumentTypeError: the function or an argument cannot be pickled; the message names the variable.
        FarandoleError: a rank or its executor was lost, or the tasks do not start.
        Exception: what the function raised on the rank that failed first. Its cause has that rank's traceback.
    """
    options = [*["--timestamp"] * bool(timestamp), *["--verbose"] * bool(verbose)]
    options += [f"--output-dir={output_dir}"] if output_dir is not None else []
    options += [f"--network-interfaces={network_interfaces}"] if network_interfaces is not None else []
    with Call(fn, args, kwargs, "farandole_spark.run") as call:
        cluster = _cluster.find(spark)
        deadline = time.monotonic() + (START_SECONDS if start_timeout is None else float(start_timeout))
        ranks = _await_slots(cluster, count_of(num_proc), deadline)
        address, bind = cluster.addresses()
        hub = Hub(driver_address or address, "0.0.0.0" if driver_address else bind, driver_port)
        with _Job(cluster, hub, ranks, f"farandole_spark.run: {getattr(fn, '__name__', 'a function')}") as job:
            job.await_tasks(deadline)
            return job.run(call, env, options, stdout, stderr)


def _await_slots(cluster: Cluster, wanted: int | None, deadline: float) -> int:
    """Returns the number of ranks. Raises ArgumentError where the cluster is too small, else waits until the time."""
    if cluster.setting("spark.dynamicAllocation.enabled").lower() == "true":
        raise farandole.ArgumentError(
            "Spark runs no barrier stage with dynamic allocation; set spark.dynamicAllocation.enabled to false."
        )
    tell, began = _Teller(), time.monotonic()
    while True:
        slots = cluster.slots()
        if wanted is None and slots.total is None:
            raise farandole.ArgumentError("this cluster does not tell how many slots it has; give num_proc.")
        ranks = wanted or slots.total or 1
        if why := _slots.too_few(ranks, slots, time.monotonic() - began):
            raise farandole.ArgumentError(why)
        waits = _slots.waiting(ranks, slots)
        if not waits and slots.total != 0:
            return ranks
        if time.monotonic() >= deadline:
            raise farandole.FarandoleError(f"the job did not start within its start timeout: still {waits}.")
        tell(waits)
        time.sleep(_POLL_SECONDS)


class _Teller:
    """Writes a sentence where the user sees it: at once if it is new, else now and then."""

    def __init__(self, quiet_s: float = 1.0) -> None:
        self._said, self._due = "", time.monotonic() + quiet_s

    def __call__(self, sentence: str) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._said, self._due = sentence, now + _TELL_SECONDS
            print(f"farandole: {sentence}", file=sys.stderr, flush=True)


class _Job:
    """A stage with its hub, from its start to the end of its last task."""

    def __init__(self, cluster: Cluster, hub: Hub, ranks: int, title: str) -> None:
        self._cluster, self._hub, self._ranks, self._title = cluster, hub, ranks, title
        self._ended_well = False

    def __enter__(self) -> _Job:
        try:
            self._hub.__enter__()
        except OSError as error:
            where = self._hub.bind or self._hub.address
            raise farandole.FarandoleError(
                f"the driver cannot listen at {where}, port {self._hub.port or 'any'} ({error.strerror}); give another "
                "driver_address or driver_port."
            ) from error
        try:
            has_threads = bool(self._cluster.setting("spark.executorEnv.OMP_NUM_THREADS"))
            plan = Plan(self._hub.endpoint, self._hub.key, has_threads)
            self._stage: Stage = self._cluster.start(plan, self._ranks, self._title)
        except BaseException:
            self._hub.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._hub.__exit__()
        self._stage.end(at_once=not self._ended_well)

    def await_tasks(self, deadline: float) -> None:
        """Wait for all of them. Raises FarandoleError."""
        tell = _Teller(_TELL_SECONDS)
        while not self._hub.wait(self._ranks, _POLL_SECONDS):
            here = self._hub.count()
            if self._stage.is_over:
                why = self._stage.reason or "it ended before all of its tasks had begun"
                raise farandole.FarandoleError(f"Spark's stage has failed: {why}.")
            if time.monotonic() >= deadline:
                raise farandole.FarandoleError(
                    f"{here} of {self._ranks} tasks came to the driver at {'{}:{}'.format(*self._hub.endpoint)} within "
                    "the start timeout; free slots, or give a longer start_timeout."
                )
            tell(f"waiting for {self._ranks} tasks, {here} have come")

    def run(
        self,
        call: Call,
        env: Mapping[str, str] | None,
        options: Sequence[str],
        stdout: TextIO | None,
        stderr: TextIO | None,
    ) -> list[Any]:
        """Returns the results. Raises what `Call.run` does; a lost task comes with Spark's reason."""
        hosts = listed(self._hub.arrange())
        try:
            results = call.run(
                self._hub, "Spark", self._ranks, hosts, env=env, options=options, stdout=stdout, stderr=stderr
            )
        except farandole.FarandoleError as error:
            if type(error) is not farandole.FarandoleError or "lost" not in str(error):
                raise
            self._stage.await_end(_REASON_SECONDS)
            why = f" Spark says: {self._stage.reason}." if self._stage.reason else ""
            raise farandole.FarandoleError(f"{error}{why}") from None
        self._ended_well = True
        return results
