"""`elastic.run`: calls the program's function, again and again, in one world after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Concatenate, ParamSpec, TypeVar

from farandole._api.errors import HostsUpdatedInterrupt, MembershipError, RecoverableError
from farandole._elastic import copies
from farandole._elastic.membership import Membership
from farandole._elastic.state import State
from farandole._runtime import clock
from farandole._start import environment, world

P = ParamSpec("P")
R = TypeVar("R")
_EQUAL = "farandole.elastic.is_equal"
_MOST_VAIN_EPOCHS = 3  # one after the other, without a commit and with the same members


S = TypeVar("S", bound=State)


def run(func: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a training function go on when ranks are lost or leave. All ranks call it, after `init()`.

    Before the first call, and in each new world, the state is made equal on all ranks: that of the rank with the most
    commits. When a rank is lost, the others take back their last commit, and the function is called again in a world
    without that rank, in the same process, so it must do all its work with what the state holds. When a rank has been
    told to leave (SIGTERM), all ranks interrupt the function at the same commit, and the others go on from there; the
    rank that leaves exits with code 0. Newcomers, which replace lost ranks, are taken in at a commit likewise.

    Args:
        func: called with a state and the other arguments.

    Returns:
        A function of the same arguments, which returns what `func` returns in the last world. It raises what `func`
        raises but RecoverableError and HostsUpdatedInterrupt; MembershipError where the job cannot go on; ValueError
        where FARANDOLE_BACKEND names MPI, whose ranks cannot change.

    Example:
        >>> @elastic.run
        ... def train(state):
        ...     while state.step < 3:
        ...         state.step += 1
        ...         state.commit()
        >>> state = elastic.ObjectState(step=0)
        >>> train(state)
        >>> state.step
        3
    """
    return run_within(nullcontext, func)


def run_within(
    guard: Callable[[], AbstractContextManager[object]], func: Callable[Concatenate[S, P], R]
) -> Callable[Concatenate[S, P], R]:
    """`run` for a plugin whose framework must be settled, or whose errors be translated, before a world is left.

    Args:
        guard: makes a context for each world. The reset callbacks, `sync` and `func` are called inside of it; it may
            raise another error for the one that it sees.
        func: as for `run`.
    """

    @functools.wraps(func)
    def wrapper(state: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        is_newcomer = world.joins() >= 0
        if is_newcomer:  # all that takes memory, while nobody waits: the state is copied twice before it goes on
            state.save()
            state.save()
        membership = _membership()
        membership.begin()
        goes_on = copies.take_back(state, is_newcomer)
        try:
            result = _run(membership, state, is_newcomer, goes_on, guard, lambda: func(state, *args, **kwargs))
        finally:
            copies.flush()
        membership.pause()  # not where an exception ends this rank, without which the others go on
        return result

    return wrapper


@functools.cache
def _membership() -> Membership:
    """The membership of this process. Collective at the first call."""
    if "mpi" in environment.backends():
        raise ValueError(
            f"FARANDOLE_BACKEND={','.join(environment.backends())} names mpi, whose ranks cannot change while a job "
            "runs; elastic.run needs another backend, such as native"
        )
    return Membership()


def _run(
    membership: Membership,
    state: State,
    is_newcomer: bool,
    goes_on: bool,
    guard: Callable[[], AbstractContextManager[object]],
    call: Callable[[], R],
) -> R:
    """Until the function returns, or raises what no other world would fix."""
    is_first, vain = not goes_on, 0  # a job that goes on from a copy has other ranks than the one before it
    is_saved, has_state = is_newcomer, not is_newcomer
    is_equal = False  # the states of all ranks, as far as this one knows
    while True:
        before, lost = (state._commits, membership.epoch.members), None
        try:
            with guard():
                if not is_first:
                    state.on_reset()
                if not (membership.epoch.number and _are_equal(is_equal, has_state)):
                    state.sync()
                is_saved = has_state = True
                return call()
        except RecoverableError as error:
            if not membership.can_change:
                membership.check_launcher(error)
                raise
            membership.check_is_of_this_epoch(error)
            lost, is_equal = error, False
        except HostsUpdatedInterrupt as change:
            if not membership.can_change:
                raise
            is_equal = change.skip_sync
        membership.enter_next()
        if lost is not None and is_saved:  # else it is lost before the states were equal for the first time
            state.restore()
        is_first = False
        vain = vain + 1 if (state._commits, membership.epoch.members) == before else 0
        if vain == _MOST_VAIN_EPOCHS:
            raise MembershipError(
                f"{vain} epochs in a row ended without a commit, although no rank was lost; the last reason: {lost}"
            ) from lost


def _are_equal(is_equal: bool, has_state: bool) -> bool:
    """Returns whether the states of all ranks are equal, as all say. Collective.

    Raises MembershipError where no rank is left that has the state of the job: newcomers would begin again.
    """
    own = [is_equal, has_state, copies.runs()]
    reported = own if world.size() == 1 else clock.allgather(own, _EQUAL)
    copies.agree(reported[2::3])
    if not any(reported[1::3]):
        raise MembershipError(
            "all ranks that had the state of the job were lost while they sent it to new ranks, so it is gone; "
            "start the job again from a checkpoint or FARANDOLE_COMMITS"
        )
    return world.size() == 1 or all(reported[::3])
