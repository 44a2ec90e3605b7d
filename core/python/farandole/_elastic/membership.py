"""This process's membership of an elastic job: which epoch it is in, and how it gets into the next one."""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Callable

from farandole._api.errors import DeadlineError, MembershipError, PeerLostError, RecoverableError
from farandole._api.objects import allgather_object
from farandole._elastic import copies, notices
from farandole._elastic.epochs import Epoch, Member, Report, key_of
from farandole._elastic.lease import Lease
from farandole._runtime import clock
from farandole._runtime.native import core
from farandole._start import bootstrap, ending, environment, key_exchange, this_host, world

_START_S = 20.0  # of an epoch, whose members are all there; then another one is decided


class Membership:
    """Lasts from the first `elastic.run` of a process to its end, over all epochs."""

    def __init__(self) -> None:
        """Collective. A newcomer waits until the others take it in."""
        is_newcomer = world.joins() >= 0
        self._me = world.joins() if is_newcomer else world.rank()
        self.epoch = Epoch(-1, ()) if is_newcomer else Epoch(0, tuple(range(world.size())))
        self._job_key, self._launcher = world.job_key(), world.launcher()
        self._address = environment.address() or world.own_address()
        me = Member(self._me, this_host.identity(), socket.gethostname(), os.getpid())
        everybody = [me] if is_newcomer else allgather_object(me, "farandole.elastic.members")
        self._members: dict[int, Member] = {each.number: each for each in everybody}
        self._watched: dict[int, int] = {}  # members of this host -> descriptors of their processes
        self._watch_newcomers()
        self._lease = self._ask_launcher()
        if is_newcomer:
            self.enter_next()

    @property
    def can_change(self) -> bool:
        """Returns whether the loss of a rank leaves the others their job."""
        return self._lease is not None

    def begin(self) -> None:
        """The program is inside of `elastic.run`."""
        if self._lease is not None:
            self._lease.begin()
            notices.watch(self._lease.has_news)

    def pause(self) -> None:
        """The program is outside of it, where nothing is done again."""
        notices.unwatch()
        if self._lease is not None:
            self._lease.pause()

    def check_launcher(self, error: RecoverableError) -> None:
        """Raises MembershipError where the launcher is another program, which does not say how to restart the job."""
        if self._launcher == environment.OURS:
            return
        raise MembershipError(
            f"{str(error).rstrip('.')}. {self._other_launcher()}, so the others cannot go on: start the job again from "
            "a checkpoint or FARANDOLE_COMMITS, or with `farandole run --min-np N`, which goes on without lost ranks"
        ) from error

    def _other_launcher(self) -> str:
        return f"{self._launcher or 'Another program'} has started these ranks"

    def check_is_of_this_epoch(self, error: RecoverableError) -> None:
        """Raises MembershipError where the error tells of an operation of an earlier epoch."""
        if isinstance(error, PeerLostError) and self.epoch.number and world.is_initialized() and not core.lost_rank():
            raise MembershipError(
                f"no rank of epoch {self.epoch.number} is lost, so the function has waited for an operation that it "
                f"began in an earlier epoch ({error}); it must not keep handles from one call to the next"
            ) from error

    def enter_next(self) -> None:
        """Into the next world that can be entered; does not return where this rank leaves. Raises MembershipError."""
        notices.forget_news()
        while True:
            suspects = self._suspects()
            world.leave_epoch()
            # A listener, or -1 where none is needed yet, and the rendezvous endpoint of a world whose rank 0 is here.
            offered = core.listen(f"tcp:{self._address}:0") if self._address else (-1, key_exchange.store_name())
            listener, store = offered
            try:
                epoch = self._next_epoch(Report(self.epoch.number, self._me, store, suspects, notices.is_leaving()))
            except BaseException:
                _close(listener)
                raise
            if epoch.members[:1] != (self._me,):
                _close(listener)
                listener = -1
            if self._me not in epoch.members:
                self._exit(len(epoch.members))
            self.epoch = epoch
            try:
                self._enter(listener)
                return
            except RecoverableError:  # one more is lost
                continue

    def _ask_launcher(self) -> Lease | None:
        """The lease of this rank, or None if the end of any rank ends the job."""
        name = environment.membership().removeprefix("unix:")
        if not name:
            if self._me == 0 and len(self._members) > 1 and not copies.are_kept():
                is_ours = self._launcher == environment.OURS
                who = "`farandole run` was started without --min-np" if is_ours else self._other_launcher()
                _warn(f"{who}, so the loss of a rank ends this job")
            return None
        try:
            return Lease(name, self._members[self._me], self._members)
        except OSError as error:
            raise MembershipError(
                f"rank {self._me} cannot reach its launcher at the socket @{name} ({error.strerror or error}): run it "
                "in the network namespace of the launcher, or start the job without --min-np"
            ) from error

    def _suspects(self) -> frozenset[int]:
        found = core.lost_rank()
        return frozenset({self.epoch.members[found[0]]} if found and found[0] < len(self.epoch.members) else ())

    def _next_epoch(self, report: Report) -> Epoch:
        assert self._lease is not None
        try:
            return self._lease.next_epoch(report)
        except MembershipError:
            if not report.leaving:
                raise
            return Epoch(report.epoch + 1, ())

    def _exit(self, left: int) -> None:
        others = f"{left} rank{'s' if left > 1 else ''} go{'' if left > 1 else 'es'} on" if left else "nobody is left"
        me = self._members[self._me]
        who = f"rank {me.number} (host {me.host_name}, pid {me.pid})"
        print(f"farandole: {who} leaves after SIGTERM; {others}.", file=sys.stderr, flush=True)
        raise SystemExit(0)

    def _enter(self, listener: int) -> None:
        """Collective among the members of the epoch. Takes over the listener."""
        epoch = self.epoch
        rank = epoch.members.index(self._me)
        hosts = [self._members[number].host for number in epoch.members]
        place = bootstrap.place(rank, hosts, self._launcher)
        if place.size == 1:
            _close(listener)
            rendezvous = bootstrap.Rendezvous(place)
        else:
            address = self._address if place.local_size < place.size else ""
            rendezvous = bootstrap.Rendezvous(place, epoch.store, key_of(epoch, self._job_key), address, listener)
        look = self._look(time.monotonic() + _START_S)
        world.enter_epoch(rendezvous, epoch.members, epoch.number, look, _tell_process_sets)

    def _look(self, deadline: float) -> Callable[[], None]:
        """Looks for members that die while the epoch starts: the one to meet at may not even listen."""
        self._watch_newcomers()
        members = self._watched.keys() & self.epoch.members
        watched = {self._watched[number]: number for number in members if self._watched[number] >= 0}
        poll = select.poll()
        for descriptor in watched:
            poll.register(descriptor, select.POLLIN)

        def look() -> None:
            ending.look_for_the_ended()
            for descriptor, _ in poll.poll(0):
                died = f"{self._members[watched[descriptor]]} died"
                raise PeerLostError(f"epoch {self.epoch.number} cannot start: {died}")
            if time.monotonic() > deadline:
                raise DeadlineError(f"epoch {self.epoch.number} did not start within {_START_S:.0f} s")

        return look

    def _watch_newcomers(self) -> None:
        """Begin while they are alive: the number of a process that is gone and reaped tells nothing."""
        for number in self._watched.keys() - {self._me, *self.epoch.members}:
            _close(self._watched.pop(number))
        host = self._members[self._me].host
        living = [self._members[number] for number in {self._me, *self.epoch.members}]
        here = [each for each in living if each.host == host and each.number not in self._watched]
        self._watched |= {each.number: _watch(each) for each in here}


def _tell_process_sets(mine: dict[int, tuple[int, ...]] | None) -> list[dict[int, tuple[int, ...]] | None]:
    """The sets that all ranks know, in their order. Most jobs have none, and pickling takes long."""
    if not any(clock.allgather([bool(mine)], "farandole.elastic.has_process_sets")):
        return [mine]
    return allgather_object(mine, "farandole.elastic.process_sets")


def _watch(member: Member) -> int:
    """A descriptor that is readable once the process is gone; -1 where it cannot be seen from here."""
    try:
        return os.pidfd_open(member.pid)
    except OSError:
        return -1


def _close(listener: int) -> None:
    if listener >= 0:
        os.close(listener)


def _warn(sentence: str) -> None:
    from farandole._start.log import logger  # with logging, which `import farandole` does without

    logger.warning(sentence)
