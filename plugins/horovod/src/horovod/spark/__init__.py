"""The names of Horovod's module, from farandole_spark."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from horovod._environment import needing as _needing

with _needing("farandole-spark"):
    import farandole_spark as _spark

from horovod._later import attribute_error as _attribute_error
from horovod.runner._errors import of_job as _of_job

T = TypeVar("T")

__all__ = ["run", "run_elastic"]


def run(
    fn: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    start_timeout: float | None = None,
    use_mpi: bool | None = None,
    use_gloo: bool | None = None,
    extra_mpi_args: str | None = None,
    env: Mapping[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: Any = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
) -> list[T]:
    """Call `fn` on `num_proc` ranks in tasks of Spark, by `farandole_spark.run`, and return the results in rank order.

    Args:
        fn: a function, also a lambda or one of a notebook's cell.
        args: its arguments.
        kwargs: its keyword arguments.
        num_proc: number of ranks, by default all slots of the cluster.
        start_timeout: seconds to wait for free slots and for the tasks.
        use_mpi: without effect, as `extra_mpi_args`, which a warning says.
        use_gloo: without effect, as no MPI is needed.
        extra_mpi_args: see `use_mpi`.
        env: variables for the ranks.
        stdout: where the lines of ranks appear.
        stderr: the same for what they write to stderr.
        verbose: 2 reports what is started, and when each rank ends.
        nics: interfaces that executors use between them, `"eth0,ib0"` or a list.
        prefix_output_with_timestamp: begin each line with the time of day.
        executable: without effect, as ranks have the Python of Spark's tasks, which a warning says.

    Raises:
        RuntimeError: a rank failed. Where the function raised, the error is of that class, too.
    """
    for name, is_given in (("use_mpi, extra_mpi_args", use_mpi or extra_mpi_args), ("executable", executable)):
        if is_given:
            warnings.warn(f"horovod.spark.run: no effect: {name}", stacklevel=2)
    try:
        return _spark.run(
            fn,
            args,
            kwargs,
            num_proc,
            start_timeout=start_timeout,
            env=env,
            stdout=stdout,
            stderr=stderr,
            verbose=verbose > 1,
            network_interfaces=_interfaces(nics),
            timestamp=prefix_output_with_timestamp,
        )
    except Exception as error:
        raise _of_job(error) from error.__cause__


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
    env: Mapping[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: Any = None,
    prefix_output_with_timestamp: bool = False,
) -> list[T]:
    """Call `fn` by `farandole_spark.run_elastic`: again from its last commit when a rank or an executor is lost.

    Args:
        fn: trains within `elastic.run`.
        args: its arguments.
        kwargs: its keyword arguments.
        num_proc: number of ranks at the start, by default all slots of the cluster.
        min_num_proc: at least so many later, by default `num_proc`.
        max_num_proc: at most so many later, by default `num_proc`.
        start_timeout: seconds to wait for free slots and for the tasks.
        elastic_timeout: the same after a loss.
        reset_limit: how often the ranks begin again, at most.
        env: variables for the ranks.
        stdout: where the lines of ranks appear.
        stderr: the same for what they write to stderr.
        verbose: 2 reports what is started, and when each rank ends.
        nics: interfaces that executors use between them, `"eth0,ib0"` or a list.
        prefix_output_with_timestamp: begin each line with the time of day.

    Raises:
        RuntimeError: a rank failed. Where the function raised, the error is of that class, too.
    """
    try:
        return _spark.run_elastic(
            fn,
            args,
            kwargs,
            num_proc,
            min_num_proc,
            max_num_proc,
            start_timeout,
            elastic_timeout,
            reset_limit,
            env=env,
            stdout=stdout,
            stderr=stderr,
            verbose=verbose > 1,
            network_interfaces=_interfaces(nics),
            timestamp=prefix_output_with_timestamp,
        )
    except Exception as error:
        raise _of_job(error) from error.__cause__


def _interfaces(nics: Any) -> str | None:
    return nics if nics is None or isinstance(nics, str) else ",".join(nics)


def __getattr__(name: str) -> object:
    raise _attribute_error(__name__, name)
