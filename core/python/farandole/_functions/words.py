"""The arguments of `farandole.run` as options of the launcher, which checks all that is not checked here. Pure."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Sequence
from typing import SupportsIndex

from farandole._api.errors import ArgumentError, ArgumentTypeError
from farandole._start import environment


def count_of_ranks(np: SupportsIndex) -> int:
    """At least 1. Raises ArgumentError and ArgumentTypeError."""
    if isinstance(np, bool) or not isinstance(np, SupportsIndex):
        raise ArgumentTypeError(f"farandole.run wants a whole number of ranks, not np={np!r}; write np=2.")
    ranks = operator.index(np)
    if ranks < 1:
        raise ArgumentError(f"farandole.run wants at least one rank, not np={np}; write np=2.")
    return ranks


def of_values(**values: object) -> list[str]:
    """Options of the same names, without those that are None."""
    given = {name.replace("_", "-"): value for name, value in values.items() if value is not None}
    return [f"--{name}={os.fspath(each) if isinstance(each, os.PathLike) else each}" for name, each in given.items()]


def ways(
    executable: str | None,
    ssh_port: int | None,
    ssh_identity_file: str | os.PathLike[str] | None,
    network_interfaces: str | Iterable[str] | None,
) -> list[str]:
    """The options for the way to other hosts."""
    if network_interfaces is not None and not isinstance(network_interfaces, str):
        network_interfaces = ",".join(network_interfaces)
    reached = of_values(ssh_port=ssh_port, ssh_identity_file=ssh_identity_file, network_interfaces=network_interfaces)
    return [*of_values(python=executable), *reached]


def places(ranks: int, hosts: str | None, hostfile: str | os.PathLike[str] | None) -> list[str]:
    """The options for the hosts. Without any the launcher takes those of an allocation, else this host.

    A rank starts its functions on its own host: the others of the allocation have ranks, too.
    """
    if hosts is not None and hostfile is not None:
        raise ArgumentError("farandole.run takes hosts or hostfile, not both; leave one out.")
    if hostfile is not None or hosts is not None:
        return of_values(hostfile=hostfile, hosts=hosts)
    return [f"--hosts=localhost:{ranks}"] if environment.is_a_rank() else []


def elastic(
    ranks: int,
    min_np: SupportsIndex | None,
    max_np: SupportsIndex | None,
    reset_limit: SupportsIndex | None,
    cooldown_range: Sequence[float] | None,
    timeout: float | None,
) -> list[str]:
    """The options of a job that goes on when ranks are lost. Raises ArgumentError and ArgumentTypeError."""
    counts = {"min_np": _count("min_np", min_np, 1), "max_np": _count("max_np", max_np, 1)}
    counts["reset_limit"] = _count("reset_limit", reset_limit, 0)
    rest = {"blacklist_cooldown_range": cooldown_range, "elastic_timeout": timeout}
    least, most = counts["min_np"], counts["max_np"]
    given = next((name for name, value in [*counts.items(), *rest.items()] if value is not None), None)
    if least is None:
        if given is None:
            return []
        raise ArgumentError(f"farandole.run: {given} is for jobs that lose ranks and go on; give min_np=1, or more.")
    if least > ranks:
        raise ArgumentError(f"farandole.run: min_np={least} is more than the {ranks} ranks of np; lower it.")
    if most is not None and most < ranks:
        raise ArgumentError(f"farandole.run: max_np={most} is fewer than the {ranks} ranks of np; raise it.")
    return [*of_values(**counts, elastic_timeout=timeout), *_cooldown(cooldown_range)]


def _count(name: str, value: SupportsIndex | None, least: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise ArgumentTypeError(f"farandole.run wants a whole number, not {name}={value!r:.60}.")
    number = operator.index(value)
    if number < least:
        raise ArgumentError(f"farandole.run wants a number of at least {least}, not {name}={number}.")
    return number


def _cooldown(cooldown_range: Sequence[float] | None) -> list[str]:
    if cooldown_range is None:
        return []
    try:
        least, most = cooldown_range
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            f"farandole.run wants two numbers of seconds, not blacklist_cooldown_range={cooldown_range!r:.60}; "
            "write (1, 60)."
        ) from None
    return ["--blacklist-cooldown-range", str(least), str(most)]
