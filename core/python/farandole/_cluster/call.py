"""A function as the ranks of a job in tasks of a cluster, which have come to a server."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from farandole._api.errors import FarandoleError
from farandole._cluster import hosts as cluster_hosts
from farandole._cluster.driver_log import DriverLog
from farandole._cluster.server import TaskServer
from farandole._functions import arguments, call_payload, outcome
from farandole._start.task_environment import DRIVER_LOG
from farandole.launch import JobSpec, SpecError, job

_RANK = "farandole._cluster.rank"


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
        arguments.check_call(fn, args, kwargs, caller)
        self.title = f"{caller}: {getattr(fn, '__name__', 'a function')}"
        self._memory = call_payload.write(fn, tuple(args), dict(kwargs or {}), caller=caller, is_elsewhere=True)

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._memory)

    def run(
        self,
        server: TaskServer,
        cluster: str,
        ranks: int,
        *,
        env: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
        stdout: job.Shown | None = None,
        stderr: job.Shown | None = None,
        stop: job.Stop | None = None,
    ) -> list[Any]:
        """Call a function on the ranks of a job, and return the results in the order of the ranks.

        Args:
            server: with the tasks.
            cluster: its name, for messages.
            ranks: their number, at the start of an elastic job.
            env: variables for the ranks.
            options: more leaves of `farandole.launch.JobSpec`.
            stdout: where the lines of ranks appear, by default all of them here; see `DriverLog`.
            stderr: the same for their stderr.
            stop: lets another thread end the job.

        Raises:
            FarandoleError: a rank or its task is lost, or the job cannot start.
            Exception: as the function raised it on the rank that failed first.
        """
        variables = [f"{name}={value}" for name, value in {**(env or {}), DRIVER_LOG: "1"}.items()]
        hosts = server.hosts()
        if sum(host.slots for host in hosts) < ranks:
            raise FarandoleError(
                f"a task of {cluster} has ended, or was lost, before the job began; "
                "see its output, and start the job again."
            )
        spec = JobSpec.of(
            [_RANK], num_proc=ranks, hosts=cluster_hosts.listed(hosts), env=variables, module=True, **(options or {})
        )
        shown = stdout or DriverLog(sys.stdout), stderr or DriverLog(sys.stderr)
        function = job.Function(self._memory, cluster, server.name)
        try:
            result = job.run(spec, stdout=shown[0], stderr=shown[1], stop=stop, function=function)
        except SpecError as error:
            raise outcome.refused(error) from None
        return outcome.results(result, ranks, is_elastic=spec.elastic.min_np is not None)
