"""The public function `run`: a function as ranks in the tasks of a barrier stage."""

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
    how = how_of(env, stdout, stderr, bool(verbose), bool(timestamp), output_dir, network_interfaces)
    with Call(fn, args, kwargs, "farandole_spark.run") as call:
        cluster = _cluster.find(spark)
        deadline = time.monotonic() + (START_SECONDS if start_timeout is None else float(start_timeout))
        ranks = _await_slots(cluster, count_of(num_proc), deadline)
        server = server_of(cluster, driver_address, driver_port)
        return run_stage(cluster, server, ranks, deadline, call, None, **how)


def _await_slots(cluster: Cluster, wanted: int | None, deadline: float) -> int:
    """Returns the number of ranks. Raises ArgumentError where the cluster is too small, else waits until the time."""

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
    """The arguments of `Call.run`. `options`: of the launcher, as _OPTIONS names them."""
    return {"env": env, "stdout": stdout, "stderr": stderr, "options": dict(zip(_OPTIONS, options, strict=True))}


def server_of(cluster: Cluster, driver_address: str | None, port: int, store: CommitStore | None = None) -> TaskServer:
    """The server at the driver's address as executors reach it."""
    address, bind = cluster.addresses()
    return TaskServer(
        driver_address or address, "0.0.0.0" if driver_address else bind, port, store.store if store else None
    )
