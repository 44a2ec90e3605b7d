"""The public function `run_elastic`, whose job continues in a new stage when Spark loses one."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO, TypeVar

import farandole
from farandole.engine import Call, CommitStore

from farandole_spark import _arguments, _cluster, _slots
from farandole_spark._again import Ledger, would_come_again
from farandole_spark._arguments import Sizes
from farandole_spark._cluster import Cluster
from farandole_spark._job import await_ranks, run_stage
from farandole_spark._run import START_SECONDS, how_of, server_of
from farandole_spark._slots import Slots

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
    """Call a function on ranks in tasks of Spark, and continue from its last commit if a rank or an executor is lost.

    Spark fails a barrier stage as a whole, so all ranks start again, in a stage with the slots that are there then. The
    function is called again, and `elastic.run` begins with the newest commit, which rank 0 has saved in the background.

    Args:
        fn: function that trains inside `elastic.run` of its framework; see `run`.
        args: positional arguments of the function.
        kwargs: keyword arguments of the function.
        num_proc: number of ranks at the start, by default all slots of the cluster.
        min_num_proc: minimum number of ranks of a stage, by default `num_proc`.
        max_num_proc: maximum number of ranks of a stage, by default `num_proc`.
        start_timeout: seconds to wait for slots and tasks of the first stage, by default 600.
        elastic_timeout: the same for each later stage, by default 600.
        reset_limit: maximum number of stages after the first, by default any number.
        commits: folder that the driver and all executors share, by default the driver's memory, up to 4 GiB.
        env: see `run`.
        verbose: see `run`.
        spark: see `run`.
        driver_address: see `run`.
        driver_port: see `run`.
        timestamp: see `run`.
        output_dir: see `run`. A later stage overwrites the files of an earlier one.
        network_interfaces: see `run`.
        stdout: see `run`.
        stderr: see `run`.

    Returns:
        What the function returned on each rank of the last stage, rank 0 first.

    Raises:
        ArgumentError: numbers of ranks contradict each other, or another argument is impossible.
        ArgumentTypeError: the function or an argument cannot be pickled; the message names the variable.
        FarandoleError: a rank was lost before any commit, or more than `reset_limit` times, or slots or tasks did not
            come in time.
        Exception: what the function raised on the rank that failed first, since it would come again.
    """
    sizes = _arguments.sizes_of(num_proc, min_num_proc, max_num_proc)
    ledger, commit_store = Ledger(_arguments.limit_of(reset_limit)), CommitStore(_arguments.folder_of(commits))
    how = how_of(env, stdout, stderr, bool(verbose), bool(timestamp), output_dir, network_interfaces)
    timeouts = [START_SECONDS if each is None else float(each) for each in (start_timeout, elastic_timeout)]
    with Call(fn, args, kwargs, "farandole_spark.run_elastic") as call, contextlib.closing(commit_store):
        cluster = _cluster.find(spark)

        def attempt(stage: int, ranks: int, deadline: float) -> list[T]:
            server = server_of(cluster, driver_address, driver_port, commit_store)
            return run_stage(cluster, server, ranks, deadline, call, commit_store.target, **how)

        return _stages(cluster, sizes, timeouts, ledger, commit_store, attempt)


def _stages(
    cluster: Cluster,
    sizes: Sizes,
    timeouts: Sequence[float],
    ledger: Ledger,
    commit_store: CommitStore,
    attempt: Callable[[int, int, float], list[T]],
) -> list[T]:
    """Run stages until one finishes or no other may follow."""
    while True:
        deadline = time.monotonic() + timeouts[min(ledger.resets, 1)]
        ranks = _await_ranks(cluster, sizes, deadline)
        if sizes.least is None:
            sizes = Sizes(ranks, sizes.most)
        try:
            return attempt(ledger.resets, ranks, deadline)
        except Exception as error:
            if would_come_again(error):
                raise
            text = str(error).rstrip()
            if refusal := ledger.refusal(commit_store.count()):
                raise farandole.FarandoleError(f"{text} {refusal}") from None
            then = f"The job goes on from commit {ledger.commits} in a new stage."
            print(f"farandole: {text} {then}", file=sys.stderr, flush=True)


def _await_ranks(cluster: Cluster, sizes: Sizes, deadline: float) -> int:
    """Wait for slots, and return the number of ranks of a stage. Raises FarandoleError after the deadline."""
    least = sizes.least or 1
    late = f"the job needs at least {least} slots, and did not get them within its timeout: still {{}}; free slots, or "

    def fit(slots: Slots, waited_s: float) -> tuple[int, str]:
        return _slots.fitting(sizes.least, sizes.most, slots, waited_s), _slots.waiting(least, slots)

    return await_ranks(cluster, fit, sizes.most, deadline, f"{late}lower min_num_proc.", _slots.SETTLE_SECONDS)
