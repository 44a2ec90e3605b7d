"""A function as the ranks of a job in tasks of an engine, which have come to a hub."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import farandole
from farandole._engines.driver_log import DriverLog
from farandole._engines.hub import Hub
from farandole._functions import outcome, parcel, starter, words
from farandole._start.engine_environment import DRIVER_LOG

_RANK = "farandole._engines.rank"


class Call:
    """A function with its arguments, pickled once for all ranks. Use it as a context.

    Functions and classes of modules that are not installed travel by value.

    Args:
        fn: the function.
        args: its arguments.
        kwargs: its keyword arguments.
        caller: the name of the function that the user called, for messages.

    Raises:
        ArgumentTypeError: a part of it cannot be pickled; the message names the part.
    """

    def __init__(
        self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None, caller: str
    ) -> None:
        words.check_call(fn, args, kwargs, caller)
        self._memory = parcel.write(fn, tuple(args), dict(kwargs or {}), caller=caller, is_elsewhere=True)

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._memory)

    def run(
        self,
        hub: Hub,
        engine: str,
        ranks: int,
        hosts: str = "",
        *,
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        stdout: starter.Shown | None = None,
        stderr: starter.Shown | None = None,
        is_elastic: bool = False,
    ) -> list[Any]:
        """Call it on the ranks of a job, and return the results in their order.

        Args:
            hub: with the tasks.
            engine: its name, for messages.
            ranks: their number.
            hosts: where they run, as `Hub.arrange` tells and `listed` writes it; without it the hub is asked again and
                again, as a job with `is_elastic` needs it.
            env: variables for the ranks.
            options: more, for the launcher.
            stdout: where the lines of ranks appear, by default all of them here; see `DriverLog`.
            stderr: the same for their stderr.
            is_elastic: the job goes on without ranks that are lost, and with hosts that come.

        Raises:
            FarandoleError: a rank or its task is lost, or the job cannot start.
            Exception: as the function raised it on the rank that failed first.
        """
        given = [f"--env={name}={value}" for name, value in {**(env or {}), DRIVER_LOG: "1"}.items()]
        where = [f"--hosts={hosts}"] if hosts else [f"--host-discovery-script={_asking(hub.name)}"]
        typed = ["-np", str(ranks), *where, *given, *options, "-m", "--", _RANK]
        shown = stdout or DriverLog(sys.stdout), stderr or DriverLog(sys.stderr)
        ended = starter.run(typed, self._memory, way=f"{engine}:{hub.name}", stdout=shown[0], stderr=shown[1])
        return outcome.results(ended, ranks, is_elastic)


def _asking(hub: str) -> str:
    """The command that prints the hosts of a hub."""
    way = Path(farandole.__file__).parent / "launch" / "remote" / "way.py"
    return shlex.join([sys.executable, "-I", "-S", str(way), hub, "?"])
