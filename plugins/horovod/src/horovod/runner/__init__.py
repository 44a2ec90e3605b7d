"""The command horovodrun, and the function `run`."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import farandole

from horovod.runner._errors import of_job
from horovod.runner._options import HOROVODS_NAMES, OPTIONS

T = TypeVar("T")


class _HorovodArgs(argparse.Namespace):
    """The options of horovodrun as attributes, for programs that set some and call `horovod.runner.launch._run`."""

    def __init__(self) -> None:
        names = [*(option.key for option in OPTIONS), *HOROVODS_NAMES, "command", "run_func", "executable"]
        super().__init__(**{**dict.fromkeys(names), "num_proc": 1})


_WITHOUT_MPI = "the ranks are started without MPI; to have its network, start a script by mpirun"


def run(
    func: Callable[..., T],
    args: Any = (),
    kwargs: Any = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Any = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: float | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: Any = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: Any = None,
    network_interfaces: Any = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[T]:
    """Call `func` on `num_proc` ranks, by `farandole.run`, and return the results in rank order.

    Args:
        func: a function, also a lambda or one of a notebook's cell.
        args: its arguments.
        kwargs: its keyword arguments.
        num_proc: number of ranks.
        min_num_proc: go on while so many ranks are left, in functions that use `elastic.run`.
        max_num_proc: replace lost ranks while there are fewer than so many.
        slots: of hosts for which the script prints no number.
        reset_limit: end the job at the first change of the ranks after so many.
        cooldown_range: seconds until a lost rank is replaced, twice as long each time, and the most of them.
        hosts: names of hosts with their slots, as in `h1:4,h2:4`; by default this host.
        hostfile: a file with such names.
        host_discovery_script: a command that prints hosts, in place of `hosts`; they may change while the job runs.
        start_timeout: seconds that the ranks wait for each other at the start.
        ssh_port: the port of ssh on other hosts.
        ssh_identity_file: the key for ssh to other hosts.
        disable_cache: without effect, as no result of a check is kept.
        output_filename: a folder for a file of each rank's output.
        verbose: report what is started, and when each rank ends.
        use_gloo: without effect, as no MPI is needed.
        use_mpi: without effect, as `mpi_args`, which a warning says.
        mpi_args: likewise.
        network_interface: without effect, as Horovod has replaced it by the next.
        network_interfaces: those that hosts use between them, `"eth0,ib0"` or a list.
        executable: the Python of the ranks.
        np: replaces `num_proc`.
        min_np: replaces `min_num_proc`.
        max_np: replaces `max_num_proc`.

    Returns:
        The function's result on each rank, rank 0 first; of an elastic job on each that has finished.

    Raises:
        RuntimeError: a rank failed. Where the function raised, the error is of that class, too.

    Example:
        >>> horovod.run(lambda base: base + 1, args=(41,), num_proc=2)
        [42, 42]
    """
    _warn(bool(use_mpi or mpi_args))
    same: dict[str, Any] = {"hostfile": hostfile, "start_timeout": start_timeout, "executable": executable}
    same |= {"output_dir": output_filename, "verbose": bool(verbose), "network_interfaces": network_interfaces}
    same |= {"ssh_port": ssh_port, "ssh_identity_file": ssh_identity_file}
    elastic: dict[str, Any] = {"reset_limit": reset_limit, "blacklist_cooldown_range": cooldown_range}
    elastic |= {"host_discovery_script": host_discovery_script, "slots_per_host": slots}
    elastic |= {"min_np": min_num_proc if min_np is None else min_np}
    elastic |= {"max_np": max_num_proc if max_np is None else max_np}
    return _call(func, args, kwargs, num_proc if np is None else np, hosts, **same, **elastic)


def _call(func: Callable[..., T], *args: Any, **kwargs: Any) -> list[T]:
    try:
        return farandole.run(func, *args, **kwargs)
    except Exception as error:
        raise of_job(error) from error.__cause__


def _warn(wants_mpi: bool) -> None:
    if wants_mpi:
        warnings.warn(f"horovod.run: no effect: use_mpi, mpi_args ({_WITHOUT_MPI})", stacklevel=3)
