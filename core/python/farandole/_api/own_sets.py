"""Process sets that only their members make and remove, for the groups of a framework."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import cast

from farandole._api.errors import ArgumentError, FarandoleError
from farandole._api.ops import Kind
from farandole._api.process_sets import (
    OwnProcessSet,
    ProcessSet,
    _check_fits,
    _need_world,
    _state,
    await_added,
    begin_change,
)
from farandole._api.refusals import CallGuard


def add_own_process_set(ranks: Sequence[int], name: str = "") -> ProcessSet:
    """Make a separate set for a group of a framework. Only its members call this, at any time, from any thread.

    A call that an exception of the user's interrupts, such as KeyboardInterrupt, goes on in the core, where the others
    may complete it. The next call with that name and these ranks returns its set; a call for another set gives it up.

    Args:
        ranks: the members, this rank among them.
        name: equal on all members, and different from that of any other group that is made or removed meanwhile;
            default: made of the ranks.

    Raises:
        ValueError: not such ranks; or they are in as many sets as can be, 63.
        MismatchError: the members give different ranks under one name.
    """
    _need_world()
    name = f"process set {name or list(ranks)}"
    with CallGuard(name, 0):
        added = OwnProcessSet(ranks)
        _check_fits(tuple(added.ranks), _state.place[1])
    if _state.place[0] not in added.ranks:
        raise ArgumentError(f"rank {_state.place[0]} is not in {added}; make the call on the ranks of the set only")
    key = name, tuple(added.ranks)
    handle = _state.interrupted.pop(key, None)
    _give_up_interrupted()
    # Without the lock: another thread may be making a set that other members wait for first.
    if handle is None:
        handle = begin_change(Kind.ADD_PROCESS_SET, added.ranks, name)
    try:
        _state.own[added] = await_added(handle)
    except FarandoleError:
        raise
    except BaseException:
        _state.interrupted[key] = handle
        raise
    return added


def remove_own_process_set(process_set: ProcessSet) -> bool:
    """Forget a set of `add_own_process_set`. Only its members call it, once its operations are complete.

    Returns whether there was one. Raises ValueError while an operation is in flight here, MismatchError if elsewhere.
    """
    number = _state.own.get(cast(OwnProcessSet, process_set))
    if number is None:
        return False
    begin_change(Kind.REMOVE_PROCESS_SET, [number], _removal_of(number)).wait()
    _state.own.pop(cast(OwnProcessSet, process_set), None)
    with _state.lock:
        _state.ids = dict(_state.ids)  # so that its number is looked up again
    return True


def _removal_of(number: int) -> str:
    return f"removal of process set {number}"


def _give_up_interrupted() -> None:
    """Agree to remove the sets that other members have made meanwhile; a set is gone once all its members agree."""
    for key, handle in list(_state.interrupted.items()):
        if handle.done() and _state.interrupted.pop(key, None) is not None:
            with suppress(FarandoleError):  # it has failed
                number = await_added(handle)
                begin_change(Kind.REMOVE_PROCESS_SET, [number], _removal_of(number))
