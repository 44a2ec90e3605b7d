"""`HorovodRunner`, with the names and the behaviour that Databricks' programs know."""

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
        np: number of ranks. Below 0: so many processes on the driver, without Spark; above 0: tasks of one barrier
            stage; 0: all slots of the cluster, which is deprecated as its size may change.
        driver_log_verbosity: `"log_callback_only"` shows what ranks send by `log_to_driver` and `LogCallback`; `"all"`
            shows all that they print.

    Raises:
        ValueError: another verbosity.
        TypeError: `np` is no whole number.
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
            main: the function; it calls `init()`.
            kwargs: its arguments.

        Raises:
            Exception: see `farandole_spark.run`, and `farandole.run` for ranks on the driver.
        """
        if self.num_processor < 0:  # which shows all that they print, as on Databricks
            results: list[T] = farandole.run(main, (), kwargs, np=-self.num_processor)
            return results[0]
        shows_all = self.driver_log_verbosity == "all"
        stdout, stderr = (DriverLog(stream, shows_all) for stream in (sys.stdout, sys.stderr))
        found = run(main, (), kwargs, self.num_processor or None, stdout=stdout, stderr=stderr)  # type: ignore[arg-type]
        return found[0]
