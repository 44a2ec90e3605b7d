"""`HorovodRunner`, with the names and the behavior that programs for Databricks expect."""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable
from typing import Any, SupportsIndex, TypeVar

import farandole
from farandole.engine import DriverLog

from farandole_spark._arguments import VERBOSITIES
from farandole_spark._run import run

T = TypeVar("T")


class HorovodRunner:
    """Runs a function on several ranks, from a notebook.

    Args:
        np: number of ranks. A negative number starts that many processes on the driver, without Spark; a positive one,
            tasks of one barrier stage. 0 means all slots of the cluster, and is deprecated, as their number may change.
        driver_log_verbosity: `"log_callback_only"` shows what ranks send by `log_to_driver` and `LogCallback`; `"all"`
            shows all their output.

    Raises:
        ValueError: the verbosity is unknown.
        TypeError: `np` is not an integer.
    """

    def __init__(self, *, np: SupportsIndex, driver_log_verbosity: str = "log_callback_only") -> None:
        if isinstance(np, bool) or not isinstance(np, SupportsIndex):
            raise farandole.ArgumentTypeError(f"np must be a whole number of ranks, not {np!r:.60}; write np=2.")
        if driver_log_verbosity not in VERBOSITIES:
            raise farandole.ArgumentError(
                f"driver_log_verbosity must be 'all' or 'log_callback_only', not {driver_log_verbosity!r:.60}."
            )
        self.num_processor = operator.index(np)
        self.driver_log_verbosity = driver_log_verbosity
        if self.num_processor == 0:
            warnings.warn(
                "HorovodRunner(np=0) takes all slots that the cluster has at this moment, and is deprecated; give the "
                "number.",
                DeprecationWarning,
                stacklevel=2,
            )

    def run(self, main: Callable[..., T], **kwargs: Any) -> T:
        """Call `main(**kwargs)` on all ranks, and return what it returned on rank 0.

        Args:
            main: function to call, which calls `init()`.
            kwargs: keyword arguments of the function.

        Raises:
            Exception: see `farandole_spark.run`, and `farandole.run` for ranks on the driver.
        """
        if self.num_processor < 0:  # shows all output, as on Databricks
            results: list[T] = farandole.run(main, (), kwargs, np=-self.num_processor)
            return results[0]
        shows_all = self.driver_log_verbosity == "all"
        stdout, stderr = (DriverLog(stream, shows_all) for stream in (sys.stdout, sys.stderr))
        found = run(main, (), kwargs, self.num_processor or None, stdout=stdout, stderr=stderr)  # type: ignore[arg-type]
        return found[0]
