"""The command horovodrun, and the function `run`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import farandole

T = TypeVar("T")
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
        min_num_proc: of elastic jobs, so refused, as the next four.
        max_num_proc: refused.
        slots: refused.
        reset_limit: refused.
        cooldown_range: refused.
        hosts: names of hosts with their slots, as in `h1:4,h2:4`; by default this host.
        hostfile: a file with such names.
        host_discovery_script: refused.
        start_timeout: seconds that the ranks wait for each other at the start.
        ssh_port: the port of ssh on other hosts.
        ssh_identity_file: the key for ssh to other hosts.
        disable_cache: without effect, as no result of a check is kept.
        output_filename: a folder for a file of each rank's output.
        verbose: report what is started, and when each rank ends.
        use_gloo: without effect, as no MPI is needed.
        use_mpi: without effect, which a warning says.
        mpi_args: likewise.
        network_interface: without effect, as Horovod has replaced it by the next.
        network_interfaces: those that hosts use between them, `"eth0,ib0"` or a list.
        executable: the Python of the ranks.
        np: replaces `num_proc`.
        min_np: refused.
        max_np: refused.

    Returns:
        The function's result on each rank, rank 0 first.

    Raises:
        NotImplementedError: an argument of elastic jobs.
        Exception: as `farandole.run`.

    Example:
        >>> horovod.run(lambda base: base + 1, args=(41,), num_proc=2)
        [42, 42]
    """
    elastic = {"min_num_proc": min_num_proc, "max_num_proc": max_num_proc, "min_np": min_np, "max_np": max_np}
    elastic |= {"slots": slots, "reset_limit": reset_limit, "cooldown_range": cooldown_range}
    _refuse(elastic | {"host_discovery_script": host_discovery_script})
    if use_mpi or mpi_args:
        warnings.warn(f"horovod.run: no effect: use_mpi, mpi_args ({_WITHOUT_MPI})", stacklevel=2)
    same: dict[str, Any] = {"hostfile": hostfile, "start_timeout": start_timeout, "executable": executable}
    same |= {"output_dir": output_filename, "verbose": bool(verbose), "network_interfaces": network_interfaces}
    same |= {"ssh_port": ssh_port, "ssh_identity_file": ssh_identity_file}
    return farandole.run(func, args, kwargs, num_proc if np is None else np, hosts, **same)


def _refuse(elastic: dict[str, Any]) -> None:
    given = [name for name, value in elastic.items() if value is not None]
    if given:
        raise NotImplementedError(
            f"horovod.run({given[0]}=...): functions have a fixed number of ranks, num_proc=N; a script goes on with "
            "fewer by horovodrun -np N --min-np M"
        )
