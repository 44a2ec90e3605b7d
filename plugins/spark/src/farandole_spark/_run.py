"""The public function `run`, which calls a function on ranks in the tasks of a barrier stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO, TypeVar

import farandole
from farandole.engine import Call, CommitStore, TaskServer

from farandole_spark import _cluster, _slots
from farandole_spark._arguments import count_of
from farandole_spark._cluster import Cluster
from farandole_spark._job import await_ranks, run_stage
from farandole_spark._slots import Slots

T = TypeVar("T")

START_SECONDS = 600.0
_OPTIONS = ("verbose", "timestamp", "output_dir", "network_interfaces")


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

    Each rank is a new process beside the executor of a task. The function calls `init()`, as a script does. Functions
    and classes of modules that are not installed are sent by value. The output of ranks appears here. An interrupt ends
    the stage and all processes.

    Args:
        fn: function to call, which may be a lambda or defined in a notebook.
        args: positional arguments of the function.
        kwargs: keyword arguments of the function.
        num_proc: number of ranks, by default all slots of the cluster.
        start_timeout: seconds to wait for free slots and for the tasks, by default 600.
        env: environment variables for the ranks.
        verbose: report what is started, and when each rank ends.
        spark: session to use, by default the active one.
        driver_address: address at which executors reach this process, by default Spark's own.
        driver_port: port to listen at, if a firewall lets only some through; by default any free port.
        timestamp: begin each line of output with the time of day.
        output_dir: folder on the driver for a file with each rank's output.
        network_interfaces: network interfaces for connections between executors, such as `"eth0,ib0"`.
        stdout: stream for the output of the ranks, by default this process's.
        stderr: stream for what the ranks write to stderr, by default this process's.

    Returns:
        What the function returned on each rank, rank 0 first.

    Raises:
        ArgumentError: there are more ranks than the cluster has slots, or another argument is impossible.
        ArgumentTypeError: the function or an argument cannot be pickled; the message names the variable.
        FarandoleError: a rank or its executor was lost, or the tasks do not start.
        Exception: what the function raised on the rank that failed first. Its cause has that rank's traceback.
    """
    how = how_of(env, stdout, stderr, bool(verbose), bool(timestamp), output_dir, network_interfaces)
    with Call(fn, args, kwargs, "farandole_spark.run") as call:
        cluster = _cluster.find(spark)
        deadline = time.monotonic() + (START_SECONDS if start_timeout is None else float(start_timeout))
        ranks = _await_slots(cluster, count_of(num_proc), deadline)
        server = server_of(cluster, driver_address, driver_port)
        return run_stage(cluster, server, ranks, deadline, call, None, **how)


def _await_slots(cluster: Cluster, wanted: int | None, deadline: float) -> int:
    """Wait for slots, and return the number of ranks. Raises ArgumentError if the cluster is too small."""

    def fit(slots: Slots, asked_for_s: float) -> tuple[int, str]:
        ranks = wanted or slots.total or 1
        if why := _slots.too_few(ranks, slots, asked_for_s):
            raise farandole.ArgumentError(why)
        waits = _slots.waiting(ranks, slots)
        return (0 if waits or slots.total == 0 else ranks), waits

    return await_ranks(cluster, fit, wanted, deadline, "the job did not start within its start timeout: still {}.")


def how_of(
    env: Mapping[str, str] | None, stdout: TextIO | None, stderr: TextIO | None, *options: object
) -> dict[str, Any]:
    """Return the arguments of `Call.run`. `options` are those of the launcher, in the order of _OPTIONS."""
    return {"env": env, "stdout": stdout, "stderr": stderr, "options": dict(zip(_OPTIONS, options, strict=True))}


def server_of(cluster: Cluster, driver_address: str | None, port: int, store: CommitStore | None = None) -> TaskServer:
    """Return the server at the address at which executors reach the driver."""
    address, bind = cluster.addresses()
    return TaskServer(
        driver_address or address, "0.0.0.0" if driver_address else bind, port, store.store if store else None
    )
