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
) -> list[T]:
    """Call a function on `np` ranks of this host and return the results in the order of the ranks.

    Each rank is a new process, which imports what the function needs; the function calls `init()`, as a script does.
    The function and its arguments are pickled, and functions of a script or a notebook travel by value. Lines that
    ranks print appear here, each after its rank. Ctrl-C, or interrupting the cell, ends the job.

    Args:
        fn: a function, also a lambda or one of a notebook's cell.
        args: its arguments.
        kwargs: its keyword arguments.
        np: number of ranks.
        hosts: names of this host with their slots, as in `localhost:4`, by default as many slots as ranks.
        hostfile: a file with such names, as `farandole run --hostfile` reads it.
        start_timeout: seconds that the ranks wait for each other at the start.
        output_dir: a folder for a file of each rank's output.
        timestamp: begin each line with the time of day.
        verbose: report what is started, and when each rank ends.
        executable: the Python of the ranks, by default that of this process.

    Returns:
        What the function returned on each rank, rank 0 first.

    Raises:
        ArgumentError: an option that cannot be, such as another host.
        ArgumentTypeError: the function or an argument cannot be pickled; the message names the variable.
        FarandoleError: a rank died, or the job could not start; the message is the launcher's.
        Exception: what the function raised on the rank that failed first, of the same class where it can be pickled.
            Its cause has that rank's traceback.

    Example:
        >>> hvd.run(lambda base: base + 1, args=(41,), np=2)
        [42, 42]
    """
    import tempfile

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
    words = ["-np", str(ranks), *_places(ranks, hosts, hostfile)]
    words += [f"--start-timeout={start_timeout}"] if start_timeout is not None else []
    words += [f"--output-dir={os.fspath(output_dir)}"] if output_dir is not None else []
    words += ["--timestamp"] * timestamp + ["--verbose"] * verbose
    with tempfile.TemporaryDirectory(prefix="farandole-run-") as folder:
        parcel.write(folder, fn, tuple(args), dict(kwargs or {}), executable)
        ended = starter.run([*words, "--", *starter.python("farandole._functions.rank", executable), folder])
        return outcome.results(folder, ranks, ended)


def _places(ranks: int, hosts: str | None, hostfile: str | os.PathLike[str] | None) -> list[str]:
    """The options for the launcher. Raises ArgumentError for other hosts, which cannot read the function's file."""
    from farandole._start import this_host

    if hosts is not None and hostfile is not None:
        raise ArgumentError("farandole.run takes hosts or hostfile, not both; leave one out.")
    if hostfile is not None:
        path = os.fspath(hostfile)
        this_host_only(_names_in(path), this_host.names())
        return [f"--hostfile={path}"]
    if hosts is not None:
        this_host_only(hosts.split(","), this_host.names())
    return [f"--hosts={hosts or f'localhost:{ranks}'}"]


def _names_in(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.partition("#")[0].split() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"farandole.run cannot read hostfile={path!r}: {error}.") from error
    return [words[0] for words in lines if words]


def this_host_only(items: Iterable[str], known: Iterable[str]) -> None:
    """Raises ArgumentError for an item `name:slots` that is not this host. The launcher judges the rest of its form."""
    for item in items:
        text = item.strip()
        name = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
        if name and name.lower() not in known:
            raise ArgumentError(
                f"farandole.run starts ranks on this host only, and {name} is another: write the function into a "
                f"script and start it by farandole run -H {name}:2 python train.py."
            )
