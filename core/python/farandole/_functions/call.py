"""The public function `farandole.run`; its parts are imported at the first call, so `import farandole` stays quick."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

if TYPE_CHECKING:
    from farandole.launch.spec import JobSpec

T = TypeVar("T")


def run(
    fn: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    np: SupportsIndex = 1,
    hosts: str | None = None,
    *,
    hostfile: str | os.PathLike[str] | None = None,
    start_timeout: float | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    timestamp: bool = False,
    verbose: bool = False,
    executable: str | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | os.PathLike[str] | None = None,
    network_interfaces: str | Iterable[str] | None = None,
    min_np: SupportsIndex | None = None,
    max_np: SupportsIndex | None = None,
    reset_limit: SupportsIndex | None = None,
    blacklist_cooldown_range: tuple[float, float] | None = None,
    elastic_timeout: float | None = None,
    host_discovery_script: str | os.PathLike[str] | None = None,
    slots_per_host: SupportsIndex | None = None,
) -> list[T]:
    """Call a function on `np` ranks, here or on other hosts, and return the results in the order of the ranks.

    Each rank is a new process, which imports what the function needs; the function calls `init()`, as a script does.
    The function and its arguments are pickled, and functions of a script or a notebook travel by value. Lines that
    ranks print appear here, each after its rank. Ctrl-C, or interrupting the cell, ends the job.

    Args:
        fn: a function, also a lambda or one of a notebook's cell.
        args: its arguments.
        kwargs: its keyword arguments.
        np: number of ranks.
        hosts: where they run, as in `h1:2,h2:2`; by default the hosts of an allocation of a cluster, else this host.
        hostfile: a file with such names, as `farandole run --hostfile` reads it.
        start_timeout: seconds that the ranks wait for each other at the start.
        output_dir: a folder for a file of each rank's output.
        timestamp: begin each line with the time of day.
        verbose: report what is started, and when each rank ends.
        executable: the Python of the ranks, by default that of this process; on other hosts the same path.
        ssh_port: the port of ssh on other hosts.
        ssh_identity_file: the key for ssh to other hosts.
        network_interfaces: those that hosts use between them, `"eth0,ib0"` or `["eth0", "ib0"]`.
        min_np: a function that trains inside of `elastic.run` goes on while so many ranks are left; by default `np`.
        max_np: start a new rank for each that is lost, while there are fewer. Fewer than `min_np` wait for it.
        reset_limit: end the job at the first change of the ranks after so many.
        blacklist_cooldown_range: seconds until a lost rank is replaced, twice as long each time, and the most of them.
        elastic_timeout: seconds that living ranks have to notice that one is lost.
        host_discovery_script: a command that prints hosts, in place of `hosts`; they may change while the job runs.
        slots_per_host: of hosts for which it prints no number.

    Returns:
        What the function returned on each rank, rank 0 first; with `min_np` on each that has finished, in the order
        that they had at the end.

    Raises:
        ArgumentError: an argument that cannot be, such as no ranks.
        ArgumentTypeError: the function or an argument cannot be pickled; the message names the variable.
        FarandoleError: a rank died, or the launcher refuses an argument or cannot start the job, in its words.
        Exception: what the function raised on the rank that failed first, of the same class where it can be pickled.
            Its cause has that rank's traceback. Both have `failed_rank`, or None, and the job's `exit_code`.

    Example:
        >>> hvd.run(lambda base: base + 1, args=(41,), np=2)
        [42, 42]
    """
    from farandole._functions import arguments, outcome

    arguments.check_call(fn, args, kwargs)
    ranks = arguments.count_of_ranks(np)
    where = {"hosts": hosts, "hostfile": hostfile, "host_discovery_script": host_discovery_script, "python": executable}
    reach = {"ssh_port": ssh_port, "ssh_identity_file": ssh_identity_file, "network_interfaces": network_interfaces}
    output = {"output_dir": output_dir, "timestamp": timestamp, "verbose": verbose, "start_timeout": start_timeout}
    counts = {"min_np": min_np, "max_np": max_np, "reset_limit": reset_limit, "slots_per_host": slots_per_host}
    times = {"blacklist_cooldown_range": blacklist_cooldown_range, "elastic_timeout": elastic_timeout}
    spec = arguments.spec(ranks, {**where, **reach, **output, **counts, **times})
    with outcome.without_our_frames():
        return _call(fn, args, kwargs, ranks, spec, executable)


def _call(
    fn: Callable[..., T],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    ranks: int,
    spec: JobSpec,
    executable: str | None,
) -> list[T]:
    from farandole._functions import arguments, call_payload, outcome
    from farandole.launch import SpecError, job

    memory = call_payload.write(fn, tuple(args), dict(kwargs or {}), executable)
    command = job.python("farandole._functions.rank", executable)
    try:
        ended = job.run(replace(spec, command=tuple(command)), function=job.Function(memory))
    except SpecError as error:
        raise outcome.refused(error) from None
    finally:
        os.close(memory)
    return outcome.results(ended, ranks, arguments.is_elastic(spec))
