"""The public function `run_elastic`: a job that goes on in a new stage when Spark loses one."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO, TypeVar

import farandole
from farandole.engine import Call, Folder, Shelf, Where

from farandole_spark import _arguments, _cluster, _slots
from farandole_spark._again import Ledger, would_come_again
from farandole_spark._arguments import Sizes
from farandole_spark._cluster import Cluster
from farandole_spark._job import POLL_SECONDS, Job, Teller
from farandole_spark._run import START_SECONDS, check_allocation, hub_of, options_of

T = TypeVar("T")


def run_elastic(
    fn: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    start_timeout: float | None = None,
    elastic_timeout: float | None = None,
    reset_limit: int | None = None,
    commits: str | os.PathLike[str] | None = None,
    *,
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
    """Call a function on ranks in tasks of Spark, again from its last commit when a rank or an executor is lost.

    Spark fails a barrier stage as a whole, so all ranks begin anew, in a stage with the slots that are there then. The
    function is called again, and `elastic.run` begins with the state of the newest commit that was kept outside of the
    ranks. Rank 0 keeps its commits there in the background.

    Args:
        fn: as for `run`; it trains within `elastic.run` of its framework.
        args: its arguments.
        kwargs: its keyword arguments.
        num_proc: number of ranks at the start, by default all slots of the cluster.
        min_num_proc: a stage has at least so many, by default `num_proc`.
        max_num_proc: and at most so many, by default `num_proc`.
        start_timeout: seconds to wait for slots and tasks of the first stage, by default 600.
        elastic_timeout: the same for each later one, by default 600.
        reset_limit: so many stages after the first, at most; by default any number.
        commits: a folder that the driver and all executors share; by default the driver's memory, up to 4 GiB.
        env: see `run`, also for the others.
        verbose: see `run`.
        spark: see `run`.
        driver_address: see `run`.
        driver_port: see `run`.
        timestamp: see `run`.
        output_dir: see `run`; a later stage writes over the files of an earlier one.
        network_interfaces: see `run`.
        stdout: see `run`.
        stderr: see `run`.

    Returns:
        What the function returned on each rank of the last stage, rank 0 first.

    Raises:
        ArgumentError: numbers that do not fit each other, or another argument that cannot be.
        ArgumentTypeError: the function or an argument cannot be pickled; the message names the variable.
        FarandoleError: a rank was lost before any commit, or for more than `reset_limit` times; slots or tasks did not
            come in time.
        Exception: what the function raised on the rank that failed first: it would come again.
    """
    sizes = _arguments.sizes_of(num_proc, min_num_proc, max_num_proc)
    ledger, kept = Ledger(_arguments.limit_of(reset_limit)), _Kept(_arguments.folder_of(commits))
    options = options_of(verbose, timestamp, output_dir, network_interfaces)
    timeouts = [START_SECONDS if each is None else float(each) for each in (start_timeout, elastic_timeout)]
    with Call(fn, args, kwargs, "farandole_spark.run_elastic") as call:
        cluster = _cluster.find(spark)
        check_allocation(cluster)
        title = f"farandole_spark.run_elastic: {getattr(fn, '__name__', 'a function')}"

        def attempt(where: Where, ranks: int, deadline: float) -> list[T]:
            hub = hub_of(cluster, driver_address, driver_port, kept.shelf)
            with Job(cluster, hub, ranks, title, where) as job:
                job.await_tasks(deadline)
                return job.run(call, env, options, stdout, stderr)

        try:
            return _stages(cluster, sizes, timeouts, ledger, kept, attempt)
        finally:
            kept.clear()


class _Kept:
    """The commits of a job, as its driver sees them."""

    def __init__(self, folder: str) -> None:
        self.where = Where(os.urandom(8).hex(), os.urandom(32), 0, folder)
        self.shelf = None if folder else Shelf(self.where.key)
        self._folder = Folder(Path(folder), self.where.job, self.where.key) if folder else None

    def commits(self) -> int:
        """How many commits are in the newest copy."""
        return self.shelf.commits() if self.shelf else self._folder.commits() if self._folder else 0

    def clear(self) -> None:
        """Remove what lies in a folder."""
        if self._folder:
            self._folder.clear()


def _stages(
    cluster: Cluster,
    sizes: Sizes,
    timeouts: Sequence[float],
    ledger: Ledger,
    kept: _Kept,
    attempt: Callable[[Where, int, float], list[T]],
) -> list[T]:
    """One after the other, until one comes to its end or none may follow."""
    while True:
        stage = ledger.resets
        deadline = time.monotonic() + timeouts[min(stage, 1)]
        ranks = _await_ranks(cluster, sizes, deadline)
        if sizes.least is None:
            sizes = Sizes(ranks, sizes.most)
        try:
            return attempt(replace(kept.where, stage=stage, has_earlier=stage > 0), ranks, deadline)
        except Exception as error:
            if would_come_again(error):
                raise
            if refusal := ledger.refusal(kept.commits()):
                raise farandole.FarandoleError(f"{str(error).rstrip()} {refusal}") from None
            print(
                f"farandole: {str(error).rstrip()} The job goes on from commit {ledger.commits} in a new stage.",
                file=sys.stderr,
                flush=True,
            )


def _await_ranks(cluster: Cluster, sizes: Sizes, deadline: float) -> int:
    """Returns the number of ranks of a stage. Raises FarandoleError after the time."""
    tell, began = Teller(_slots.SETTLE_SECONDS), time.monotonic()
    while True:
        slots = cluster.slots()
        if slots.total is None and sizes.most is None:
            raise farandole.ArgumentError("this cluster does not tell how many slots it has; give num_proc.")
        if ranks := _slots.fitting(sizes.least, sizes.most, slots, time.monotonic() - began):
            return ranks
        waits = _slots.waiting(sizes.least or 1, slots)
        if time.monotonic() >= deadline:
            least = sizes.least or 1
            raise farandole.FarandoleError(
                f"the job needs at least {least} slots, and did not get them within its timeout"
                f"{f': still {waits}' if waits else ''}; free slots, or lower min_num_proc."
            )
        if waits:
            tell(waits)
        time.sleep(POLL_SECONDS)
