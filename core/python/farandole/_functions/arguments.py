"""The arguments of `farandole.run` as the spec of a job. Pure."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any, SupportsIndex

from farandole._api.errors import ArgumentError, ArgumentTypeError
from farandole._start import environment
from farandole.launch.spec import JobSpec, SpecError

_OF_ELASTIC_JOBS = ("reset_limit", "slots_per_host", "blacklist_cooldown_range", "elastic_timeout")


def count_of_ranks(np: SupportsIndex) -> int:
    """The checked number of ranks, at least 1. Raises ArgumentError and ArgumentTypeError."""
    if isinstance(np, bool) or not isinstance(np, SupportsIndex):
        raise ArgumentTypeError(f"farandole.run wants a whole number of ranks, not np={np!r}; write np=2.")
    ranks = operator.index(np)
    if ranks < 1:
        raise ArgumentError(f"farandole.run wants at least one rank, not np={np}; write np=2.")
    return ranks


def check_call(fn: object, args: object, kwargs: object, caller: str = "farandole.run") -> None:
    """Raises ArgumentTypeError. A text would be taken for its letters. `caller`: the function that the user called."""
    if not callable(fn):
        raise ArgumentTypeError(f"{caller} wants a function, not {type(fn).__name__}; pass it without calling it.")
    if isinstance(args, str | bytes) or not isinstance(args, Iterable):
        raise ArgumentTypeError(f"{caller} wants arguments as a tuple, not args={args!r:.60}; write args=(1,).")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ArgumentTypeError(
            f"{caller} wants keyword arguments as a dict, not kwargs={kwargs!r:.60}; write kwargs={{'a': 1}}."
        )


def spec(ranks: int, given: Mapping[str, object]) -> JobSpec:
    """The job of these arguments, without its command. Raises ArgumentError and ArgumentTypeError.

    Without hosts the launcher takes those of an allocation, else this host. A rank starts its functions on its own
    host: the others of the allocation have ranks, too.
    """
    values: dict[str, Any] = {
        name: os.fspath(each) if isinstance(each, os.PathLike) else each for name, each in given.items()
    }
    named = [name for name in ("hosts", "hostfile", "host_discovery_script") if values[name] is not None]
    if len(named) > 1:
        raise ArgumentError(f"farandole.run takes {named[0]} or {named[1]}, not both; leave one out.")
    if not named and environment.is_a_rank():
        values["hosts"] = f"localhost:{ranks}"
    odd = next((name for name in _OF_ELASTIC_JOBS if values[name] is not None), None)
    if odd is not None and all(values[name] is None for name in ("min_np", "max_np", "host_discovery_script")):
        raise ArgumentError(f"farandole.run: {odd} is for jobs that lose ranks and go on; give min_np=1, or more.")
    interfaces = values["network_interfaces"]
    if isinstance(interfaces, Iterable) and not isinstance(interfaces, str):
        values["network_interfaces"] = ",".join(interfaces)
    try:
        made = JobSpec.of(num_proc=ranks, **values)
    except SpecError as error:
        kind = ArgumentTypeError if error.has_wrong_type else ArgumentError
        raise kind(f"farandole.run: {error}") from None
    least, most = made.elastic.min_np, made.elastic.max_np
    if least is not None and least > ranks:
        raise ArgumentError(f"farandole.run: min_np={least} is more than np={ranks}; raise np, or lower min_np.")
    if most is not None and most < ranks:
        raise ArgumentError(f"farandole.run: max_np={most} is fewer than np={ranks}; raise max_np, or lower np.")
    return made


def is_elastic(made: JobSpec) -> bool:
    """Return whether the job goes on when it loses ranks."""
    elastic = made.elastic
    return elastic.min_np is not None or elastic.max_np is not None or elastic.host_discovery_script is not None
