"""The arguments of `farandole.run` as options of the launcher, which checks all that is not checked here. Pure."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
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


def check_call(fn: object, args: object, kwargs: object, caller: str = "farandole.run") -> None:
    """Raises ArgumentTypeError. A text would be taken for its letters. `caller`: the function that the user called."""
    if not callable(fn):
        raise ArgumentTypeError(f"{caller} wants a function, not a {type(fn).__name__}; pass it without calling it.")
    if isinstance(args, str | bytes) or not isinstance(args, Iterable):
        raise ArgumentTypeError(f"{caller} wants arguments as a tuple, not args={args!r:.60}; write args=(1,).")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ArgumentTypeError(
            f"{caller} wants keyword arguments as a dict, not kwargs={kwargs!r:.60}; write kwargs={{'a': 1}}."
        )


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


def places(
    ranks: int,
    hosts: str | None,
    hostfile: str | os.PathLike[str] | None,
    host_discovery_script: str | os.PathLike[str] | None,
) -> list[str]:
    """The options for the hosts. Without any the launcher takes those of an allocation, else this host.

    A rank starts its functions on its own host: the others of the allocation have ranks, too.
    """
    given = {"hosts": hosts, "hostfile": hostfile, "host_discovery_script": host_discovery_script}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise ArgumentError(f"farandole.run takes {names[0]} or {names[1]}, not both; leave one out.")
    if names:
        return of_values(**given)
    return [f"--hosts=localhost:{ranks}"] if environment.is_a_rank() else []


def elastic(
    is_elastic: bool,
    ranks: int,
    min_np: SupportsIndex | None,
    max_np: SupportsIndex | None,
    reset_limit: SupportsIndex | None,
    slots_per_host: SupportsIndex | None,
) -> list[str]:
    """The numbers of a job that goes on when ranks are lost. Raises ArgumentError and ArgumentTypeError."""
    least, most = _count("min_np", min_np, 1), _count("max_np", max_np, 1)
    more = {"reset_limit": _count("reset_limit", reset_limit, 0)}
    more["slots_per_host"] = _count("slots_per_host", slots_per_host, 1)
    _check_is_elastic(is_elastic, {"max_np": most, **more})
    if least is not None and least > ranks:
        raise ArgumentError(f"farandole.run: min_np={least} is more than np={ranks}; raise np, or lower min_np.")
    if most is not None and most < ranks:
        raise ArgumentError(f"farandole.run: max_np={most} is fewer than np={ranks}; raise max_np, or lower np.")
    return of_values(min_np=least, max_np=most, **more)


def elastic_times(is_elastic: bool, cooldown_range: Sequence[float] | None, timeout: float | None) -> list[str]:
    """Its seconds. Raises ArgumentError and ArgumentTypeError."""
    _check_is_elastic(is_elastic, {"blacklist_cooldown_range": cooldown_range, "elastic_timeout": timeout})
    return [*of_values(elastic_timeout=timeout), *_cooldown(cooldown_range)]


def _check_is_elastic(is_elastic: bool, options: Mapping[str, object]) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given and not is_elastic:
        raise ArgumentError(f"farandole.run: {given[0]} is for jobs that lose ranks and go on; give min_np=1, or more.")


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
