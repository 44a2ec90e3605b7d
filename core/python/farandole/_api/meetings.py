"""A barrier that raises an error if a rank still waits for this one in another call."""

from __future__ import annotations

from collections.abc import Sequence

from farandole._api.calls import plain
from farandole._api.ops import Kind
from farandole._api.process_sets import ProcessSet
from farandole._runtime.native import core


def meet(name: str, process_set: ProcessSet | None, prefixes: Sequence[str], why: str, advice: str) -> None:
    """Block until all ranks of the set have called this, each after its last call with one of certain names.

    Args:
        name: of the barrier.
        process_set: of the barrier and of those calls.
        prefixes: the names of those calls: a prefix alone, or followed by a number or "#".
        why: for the error: why this rank makes no more of those calls.
        advice: for the error: what to do about it.

    Raises:
        MismatchError: another rank waits for this one in such a call. All ranks raise it, and this world ends.
    """
    parameters = plain(name, process_set)
    numbers: list[int] = []
    try:
        for each in prefixes:
            numbers.append(core.exclude_calls(each, parameters[5], name, why, advice))
        core.submit(Kind.BARRIER, [], None, parameters).wait()
    finally:
        for number in numbers:
            core.allow_calls(number)
