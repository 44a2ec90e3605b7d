"""Records the distributed optimizer of each parameter: the latest one, as long as it exists."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import torch
from farandole import ArgumentError, ProcessSet
from torch.utils.weak import WeakIdKeyDictionary

Parameter: TypeAlias = torch.nn.Parameter


class Owner(Protocol):
    """The part that reduces for an optimizer."""

    has_lost: bool  # another one has taken a parameter

    @property
    def in_flight(self) -> bool:
        """Return whether a reduction is on its way."""


_lock = threading.Lock()
_reduced: set[tuple[str, tuple[int, ...] | None]] = set()  # what a thread reduces now, see `reducing`
_owners: Any = WeakIdKeyDictionary()  # parameter -> its owner, weakly


def check_free(parameters: Sequence[Parameter], names: Sequence[str]) -> None:
    """Raise ValueError if another optimizer's reductions of these parameters are on their way."""
    for parameter, name in zip(parameters, names, strict=True):
        owner = _owner(parameter)
        if owner is not None and owner.in_flight:
            raise ValueError(
                f"another DistributedOptimizer is reducing {name!r}: call its step() or synchronize() before this one "
                "is given the parameter"
            )


@contextlib.contextmanager
def reducing(names: Sequence[str], process_set: ProcessSet | None) -> Iterator[None]:
    """A context in which this thread alone reduces parameters of these names, which pair them with the other ranks'.

    Raises ArgumentError where another thread does, for an optimizer of its own.
    """
    key = min(names, default=""), None if process_set is None else tuple(process_set.ranks)
    with _lock:
        if key in _reduced:
            raise ArgumentError(
                f"two DistributedOptimizers whose parameters have the same names, {key[0]!r} among them, reduce "
                "gradients in two threads at once, so that the ranks cannot tell them apart: give each its own names, "
                "such as named_parameters=[(f'generator.{name}', p) for name, p in generator.named_parameters()]"
            )
        _reduced.add(key)
    try:
        yield
    finally:
        _reduced.discard(key)


def take(parameters: Sequence[Parameter], owner: Owner) -> None:
    """From now on they are this owner's."""
    weak = weakref.ref(owner)
    for parameter in parameters:
        earlier = _owner(parameter)
        if earlier is not None and earlier is not owner:
            earlier.has_lost = True
        _owners[parameter] = weak


def check_owned(parameters: Mapping[str, Parameter], owner: Owner) -> None:
    """Give an owner back what discarded ones had taken. Raises ValueError where a parameter, by its name, is lost."""
    lost = _first_lost(parameters, owner)
    is_busy = lost is not None and _owner(parameters[lost]).in_flight
    gc.collect()  # what is discarded, but in a cycle, would be there on some ranks and not on others
    if not is_busy:  # else it has the gradients of this step
        lost = _first_lost(parameters, owner)
    if lost is not None:
        raise ValueError(
            f"{lost!r} is reduced by another DistributedOptimizer, which was made later: step that one, or delete it; "
            "one parameter belongs to one distributed optimizer"
        )
    take(list(parameters.values()), owner)
    owner.has_lost = False


def _first_lost(parameters: Mapping[str, Parameter], owner: Owner) -> str | None:
    return next((name for name, each in parameters.items() if _owner(each) not in (None, owner)), None)


def _owner(parameter: Parameter) -> Any:
    weak = _owners.get(parameter)
    return None if weak is None else weak()
