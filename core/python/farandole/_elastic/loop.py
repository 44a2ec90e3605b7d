"""`elastic.run`: calls the program's function again in each new world."""

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
_MOST_VAIN_EPOCHS = 3  # in a row, without a commit and with the same members


S = TypeVar("S", bound=State)


def run(func: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a training function go on when ranks are lost or leave. All ranks call it, after `init()`.

    Before the first call, and in each new world, all ranks get the state of the rank with the most commits. When a rank
    is lost, the others restore their last commit, and the function is called again in the same process, in a world
    without that rank. So the function must take everything it needs from the state. When a rank has been told to leave
    (SIGTERM), all ranks interrupt the function at the same commit. The rank that leaves exits with code 0, and the
    others go on from there. New ranks, which replace lost ones, also join at a commit.

    Args:
        func: function to call, with a state and the other arguments.

    Returns:
        A function with the same arguments, which returns what `func` returns in the last world. It raises what `func`
        raises, except RecoverableError and HostsUpdatedInterrupt. It raises MembershipError if the job cannot go on,
        and ValueError if FARANDOLE_BACKEND names MPI, whose ranks cannot change.

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
    """Like `run`, for plugins that must settle their framework, or translate its errors, before a world is left.

    Args:
        guard: makes a context for each world. The reset callbacks, `sync` and `func` are called inside it. It may
            replace an error by another one.
        func: see `run`.
    """

    @functools.wraps(func)
    def wrapper(state: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        is_newcomer = world.joins() >= 0
        if is_newcomer:  # allocate memory while nobody waits: the state is copied twice before it goes on
            state.save()
            state.save()
        membership = _membership()
        membership.begin()
        goes_on = copies.take_back(state, is_newcomer)
        try:
            result = _run(membership, state, is_newcomer, goes_on, guard, lambda: func(state, *args, **kwargs))
        finally:
            copies.flush()
        membership.pause()  # not if an exception ends this rank, since the others can go on without it
        return result

    return wrapper


@functools.cache
def _membership() -> Membership:
    """Return the membership of this process. Collective at the first call."""
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
    """Call the function until it returns, or raises an error that would come again in another world."""
    is_first, vain = not goes_on, 0  # a job that continues from a copy has other ranks than the one before it
    is_saved, has_state = is_newcomer, not is_newcomer
    is_equal = False  # whether the states of all ranks are equal, as far as this one knows
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
        if lost is not None and is_saved:  # otherwise the rank was lost before the states were equal for the first time
            state.restore()
        is_first = False
        vain = vain + 1 if (state._commits, membership.epoch.members) == before else 0
        if vain == _MOST_VAIN_EPOCHS:
            raise MembershipError(
                f"{vain} epochs in a row ended without a commit, although no rank was lost; the last reason: {lost}"
            ) from lost


def _are_equal(is_equal: bool, has_state: bool) -> bool:
    """Return whether all ranks report that the states are equal. Collective.

    Raises MembershipError if no remaining rank has the state of the job: newcomers would start from the beginning.
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
