"""`elastic.run`: calls the program's function, again and again, in one world after the other."""

from __future__ import annotations

import functools
import os
import socket
import sys
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from farandole._api.errors import HostsUpdatedInterrupt, MembershipError, PeerLostError, RecoverableError
from farandole._api.objects import allgather_object
from farandole._elastic import notices
from farandole._elastic.epochs import Authority, Epoch, Member, Report, key_of
from farandole._elastic.lease import LauncherAuthority
from farandole._runtime import clock
from farandole._runtime.native import core
from farandole._start import bootstrap, environment, key_exchange, world

P = ParamSpec("P")
R = TypeVar("R")
_MOST_VAIN_EPOCHS = 3  # one after the other, without a commit and with the same members


class Resumable(Protocol):
    """The methods of a state that `run` calls."""

    commits: int

    def sync(self) -> None: ...
    def restore(self) -> None: ...
    def on_reset(self) -> None: ...


S = TypeVar("S", bound=Resumable)


def run(func: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a training function go on when ranks are lost or leave. All ranks call it, after `init()`.

    Before the first call, and in each new world, the state is made equal on all ranks: that of the rank with the most
    commits. When a rank is lost, the others take back their last commit, and the function is called again in a world
    without that rank, in the same process, so it must do all its work with what the state holds. When a rank has been
    told to leave (SIGTERM), all ranks interrupt the function at the same commit, and the others go on from there; the
    rank that leaves exits with code 0.

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

    @functools.wraps(func)
    def wrapper(state: S, *args: P.args, **kwargs: P.kwargs) -> R:
        job = _Job(state)
        try:
            return job.run(lambda: func(state, *args, **kwargs))
        finally:
            job.close()

    return wrapper


class _Job:
    """This process's part in an elastic job, inside of `run`."""

    def __init__(self, state: Resumable) -> None:
        """Collective."""
        if "mpi" in environment.backends():
            raise ValueError(
                f"FARANDOLE_BACKEND={','.join(environment.backends())} names mpi, whose ranks cannot change while a "
                "job runs; elastic.run needs another backend, such as native"
            )
        self._state = state
        self._me = world.rank()
        self._epoch = Epoch(0, tuple(range(world.size())))
        self._job_key = world.job_key()
        self._address = world.own_address()
        self._launcher = world.launcher()
        about_me = self._me, bootstrap.host_identity(), socket.gethostname(), os.getpid()
        self._members = [Member(*each) for each in allgather_object(about_me, "farandole.elastic.members")]
        self._authority = self._find_authority()
        self._vain = 0  # epochs in a row that have brought nothing
        if self._authority is not None:
            notices.watch()

    def run(self, call: Callable[[], R]) -> R:
        """Until the function returns, or raises what no other world would mend."""
        is_equal = False  # the states of all ranks, as far as this one knows
        while True:
            commits, members = self._state.commits, self._epoch.members
            lost = None
            try:
                if self._epoch.number:
                    self._state.on_reset()
                if not (self._epoch.number and self._all(is_equal)):
                    self._state.sync()
                return call()
            except RecoverableError as error:
                if self._authority is None:
                    raise
                self._check_is_of_this_epoch(error)
                lost, is_equal = error, False
            except HostsUpdatedInterrupt as change:
                if self._authority is None:
                    raise
                is_equal = change.skip_sync
            self._enter_next(lost)
            if lost is not None:
                self._state.restore()
            self._vain = self._vain + 1 if (self._state.commits, self._epoch.members) == (commits, members) else 0
            if self._vain == _MOST_VAIN_EPOCHS:
                raise MembershipError(
                    f"{_MOST_VAIN_EPOCHS} epochs in a row ended without a commit, although no rank was lost; the last "
                    f"reason: {lost}"
                ) from lost

    def close(self) -> None:
        """The function has ended."""
        notices.unwatch()
        if self._authority is not None:
            self._authority.close()

    def _find_authority(self) -> Authority | None:
        """None where the end of a rank ends the job."""
        if name := environment.membership():
            authority = self._ask_launcher(name.removeprefix("unix:"))
            authority.begin()
            return authority
        if self._launcher == environment.OURS:
            if self._me == 0:
                _warn("`farandole run` was started without --min-np, so the loss of a rank ends this job")
            return None
        if len(self._members) == 1:
            return None
        from farandole._elastic.peers import MajorityAuthority

        return MajorityAuthority(
            self._members,
            self._me,
            self._job_key,
            environment.min_np(),
            self._address,
            environment.elastic_timeout_s(),
            exchange=lambda mine: allgather_object(mine, "farandole.elastic.endpoints"),
        )

    def _ask_launcher(self, name: str) -> LauncherAuthority:
        try:
            return LauncherAuthority(name, self._me)
        except OSError as error:
            raise MembershipError(
                f"rank {self._me} cannot reach its launcher at the socket @{name} ({error.strerror or error}): run it "
                "in the network namespace of the launcher, or start the job without --min-np"
            ) from error

    def _check_is_of_this_epoch(self, error: RecoverableError) -> None:
        if isinstance(error, PeerLostError) and self._epoch.number and world.is_initialized() and not core.lost_rank():
            raise MembershipError(
                f"no rank of epoch {self._epoch.number} is lost, so the function has waited for an operation that it "
                f"began in an earlier epoch ({error}); it must not keep handles from one call to the next"
            ) from error

    def _all(self, mine: bool) -> bool:
        """Returns whether all ranks say so. Collective."""
        return world.size() == 1 or all(clock.allgather([mine], "farandole.elastic.is_equal"))

    def _enter_next(self, lost: RecoverableError | None) -> None:
        """Into the next world that can be entered; does not return where this rank leaves."""
        while True:
            suspects = self._suspects()
            world.shutdown()
            listener, store = self._offer()
            try:
                epoch = self._next_epoch(Report(self._epoch.number, self._me, store, suspects, notices.is_leaving()))
                is_host = epoch.members[:1] == (self._me,)
            except BaseException:
                _close(listener)
                raise
            if not is_host:
                _close(listener)
            if self._me not in epoch.members:
                self._exit(len(epoch.members))
            self._epoch = epoch
            try:
                self._enter(listener if is_host else -1, lost)
                return
            except RecoverableError as error:  # one more is lost
                lost = lost or error

    def _suspects(self) -> frozenset[int]:
        found = core.lost_rank()
        return frozenset({self._epoch.members[found[0]]} if found and found[0] < len(self._epoch.members) else ())

    def _offer(self) -> tuple[int, str]:
        """A listener, or -1 where none is needed yet, and the rendezvous endpoint of a world whose rank 0 is here."""
        hosts = {self._members[number].host for number in self._epoch.members}
        return core.listen(f"tcp:{self._address}:0") if len(hosts) > 1 else (-1, key_exchange.store_name())

    def _next_epoch(self, report: Report) -> Epoch:
        assert self._authority is not None
        try:
            return self._authority.next_epoch(report)
        except MembershipError:
            if not report.leaving:
                raise
            return Epoch(report.epoch + 1, ())

    def _exit(self, left: int) -> None:
        others = f"{left} rank{'s' if left > 1 else ''} go{'' if left > 1 else 'es'} on" if left else "nobody is left"
        print(f"farandole: {self._members[self._me]} leaves, as SIGTERM asked; {others}.", file=sys.stderr, flush=True)
        raise SystemExit(0)

    def _enter(self, listener: int, lost: RecoverableError | None) -> None:
        epoch = self._epoch
        rank = epoch.members.index(self._me)
        hosts = [self._members[number].host for number in epoch.members]
        place = bootstrap.place(rank, hosts, self._launcher)
        if place.size == 1:
            _close(listener)
            meeting = bootstrap.Meeting(place)
        else:
            address = self._address if place.local_size < place.size else ""
            meeting = bootstrap.Meeting(place, epoch.store, key_of(epoch, self._job_key), address, listener)
        world.enter_epoch(meeting, epoch.members, epoch.number)
        if rank == 0 and not environment.membership():  # else the launcher says so
            _warn(f"{len(epoch.members)} of {len(self._members)} ranks go on in epoch {epoch.number}: {lost or ''}")


def _close(listener: int) -> None:
    if listener >= 0:
        os.close(listener)


def _warn(sentence: str) -> None:
    from farandole._start.log import logger  # with logging, which `import farandole` does without

    logger.warning(sentence)
