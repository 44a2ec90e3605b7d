"""The public function `farandole.run`; its parts are imported at the first call, so `import farandole` stays quick."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, SupportsIndex, TypeVar

from farandole._api.errors import ArgumentError, ArgumentTypeError

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
        hosts: where they run: names of hosts with their slots, as in `h1:2,h2:2`. By default the hosts of an allocation
            of Slurm, LSF, PBS or Flux, where there is one, else this host.
        hostfile: a file with such names, as `farandole run --hostfile` reads it.
        start_timeout: seconds that the ranks wait for each other at the start.
        output_dir: a folder for a file of each rank's output.
        timestamp: begin each line with the time of day.
        verbose: report what is started, and when each rank ends.
        executable: the Python of the ranks, by default that of this process; on other hosts the same path.
        ssh_port: the port of ssh on other hosts.
        ssh_identity_file: the key for ssh to other hosts.
        network_interfaces: those that hosts use between them, `"eth0,ib0"` or `["eth0", "ib0"]`.

    Returns:
        What the function returned on each rank, rank 0 first.

    Raises:
        ArgumentError: an argument that cannot be, such as no ranks.
        ArgumentTypeError: the function or an argument cannot be pickled; the message names the variable.
        FarandoleError: a rank died, or the launcher refuses an argument or cannot start the job, in its words.
        Exception: what the function raised on the rank that failed first, of the same class where it can be pickled.
            Its cause has that rank's traceback.

    Example:
        >>> hvd.run(lambda base: base + 1, args=(41,), np=2)
        [42, 42]
    """
    from farandole._functions import outcome, parcel, starter

    if not callable(fn):
        raise ArgumentTypeError(
            f"farandole.run wants a function, not a {type(fn).__name__}; pass it without calling it."
        )
    if isinstance(np, bool) or not isinstance(np, SupportsIndex):
        raise ArgumentTypeError(f"farandole.run wants a whole number of ranks, not np={np!r}; write np=2.")
    ranks = operator.index(np)
    if ranks < 1:
        raise ArgumentError(f"farandole.run wants at least one rank, not np={np}; write np=2.")
    _check_arguments(args, kwargs)
    words = ["-np", str(ranks), *_places(ranks, hosts, hostfile)]
    words += [f"--start-timeout={start_timeout}"] if start_timeout is not None else []
    words += [f"--output-dir={os.fspath(output_dir)}"] if output_dir is not None else []
    words += ["--timestamp"] * timestamp + ["--verbose"] * verbose
    words += _ways(executable, ssh_port, ssh_identity_file, network_interfaces)
    call = parcel.write(fn, tuple(args), dict(kwargs or {}), executable)
    try:
        ended = starter.run([*words, "--", *starter.python("farandole._functions.rank", executable)], call)
    finally:
        os.close(call)
    return outcome.results(ended, ranks)


def _check_arguments(args: object, kwargs: object) -> None:
    """Raises ArgumentTypeError. A text would be taken for its letters."""
    if isinstance(args, str | bytes) or not isinstance(args, Iterable):
        raise ArgumentTypeError(f"farandole.run wants arguments as a tuple, not args={args!r:.60}; write args=(1,).")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ArgumentTypeError(
            f"farandole.run wants keyword arguments as a dict, not kwargs={kwargs!r:.60}; write kwargs={{'a': 1}}."
        )


def _ways(
    executable: str | None,
    ssh_port: int | None,
    ssh_identity_file: str | os.PathLike[str] | None,
    network_interfaces: str | Iterable[str] | None,
) -> list[str]:
    """The options for the way to other hosts."""
    words = [f"--python={executable}"] if executable is not None else []
    words += [f"--ssh-port={ssh_port}"] if ssh_port is not None else []
    words += [f"--ssh-identity-file={os.fspath(ssh_identity_file)}"] if ssh_identity_file is not None else []
    if network_interfaces is not None:
        names = network_interfaces if isinstance(network_interfaces, str) else ",".join(network_interfaces)
        words.append(f"--network-interfaces={names}")
    return words


def _places(ranks: int, hosts: str | None, hostfile: str | os.PathLike[str] | None) -> list[str]:
    """The options for the launcher. Without hosts it takes those of an allocation, else this host.

    A rank starts its functions on its own host: the others of the allocation have ranks, too.
    """
    from farandole._start import environment

    if hosts is not None and hostfile is not None:
        raise ArgumentError("farandole.run takes hosts or hostfile, not both; leave one out.")
    if hostfile is not None:
        return [f"--hostfile={os.fspath(hostfile)}"]
    if hosts is not None:
        return [f"--hosts={hosts}"]
    return [f"--hosts=localhost:{ranks}"] if environment.is_a_rank() else []
