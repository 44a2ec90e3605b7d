"""This process's membership of an elastic job: its epoch, and how it enters the next one."""

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

_START_S = 20.0  # for an epoch to start, since its members all exist; then another epoch is decided


class Membership:
    """The membership of a process, from its first `elastic.run` to its end."""

    def __init__(self) -> None:
        """Collective. A newcomer waits until the others admit it."""
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
        """Return whether the other ranks can go on when one is lost."""
        return self._lease is not None

    def begin(self) -> None:
        """Note that the program is inside `elastic.run`."""
        if self._lease is not None:
            self._lease.begin()
            notices.watch(self._lease.has_news)

    def pause(self) -> None:
        """Note that the program is outside `elastic.run`, where nothing can be repeated."""
        notices.unwatch()
        if self._lease is not None:
            self._lease.pause()

    def check_launcher(self, error: RecoverableError) -> None:
        """Raise MembershipError under a foreign launcher, which cannot replace ranks."""
        if self._launcher == environment.OURS:
            return
        raise MembershipError(
            f"{str(error).rstrip('.')}. {self._other_launcher()}, so the others cannot go on: start the job again from "
            "a checkpoint or FARANDOLE_COMMITS, or with `farandole run --min-np N`, which goes on without lost ranks"
        ) from error

    def _other_launcher(self) -> str:
        return f"{self._launcher or 'Another program'} has started these ranks"

    def check_is_of_this_epoch(self, error: RecoverableError) -> None:
        """Raise MembershipError if the error is about an operation of an earlier epoch."""
        if isinstance(error, PeerLostError) and self.epoch.number and world.is_initialized() and not core.lost_rank():
            raise MembershipError(
                f"no rank of epoch {self.epoch.number} is lost, so the function has waited for an operation that it "
                f"began in an earlier epoch ({error}); it must not keep handles from one call to the next"
            ) from error

    def enter_next(self) -> None:
        """Enter the next world. Does not return if this rank leaves. Raises MembershipError."""
        notices.forget_news()
        while True:
            suspects = self._suspects()
            world.leave_epoch()
            # A listener (-1 if none is needed yet), and the rendezvous endpoint of a world whose rank 0 is here.
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
            except RecoverableError:  # another rank is lost
                continue

    def _ask_launcher(self) -> Lease | None:
        """Return the lease of this rank, or None if the end of any rank ends the job."""
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
        """Enter the epoch. Collective among its members. Takes over the listener."""
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
        """Return a function that notices members that die while the epoch starts, when rank 0 may not listen yet."""
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
        """Watch the members of this host while they are alive: the id of a reaped process may belong to another one."""
        for number in self._watched.keys() - {self._me, *self.epoch.members}:
            _close(self._watched.pop(number))
        host = self._members[self._me].host
        living = [self._members[number] for number in {self._me, *self.epoch.members}]
        here = [each for each in living if each.host == host and each.number not in self._watched]
        self._watched |= {each.number: _watch(each) for each in here}


def _tell_process_sets(mine: dict[int, tuple[int, ...]] | None) -> list[dict[int, tuple[int, ...]] | None]:
    """Return the process sets of all ranks, in rank order. Most jobs have none, and then nothing is pickled."""
    if not any(clock.allgather([bool(mine)], "farandole.elastic.has_process_sets")):
        return [mine]
    return allgather_object(mine, "farandole.elastic.process_sets")


def _watch(member: Member) -> int:
    """Return a descriptor that becomes readable when the process ends, or -1 if it cannot be seen from here."""
    try:
        return os.pidfd_open(member.pid)
    except OSError:
        return -1


def _close(listener: int) -> None:
    if listener >= 0:
        os.close(listener)


def _warn(sentence: str) -> None:
    from farandole._start.log import logger  # imports logging, which `import farandole` avoids

    logger.warning(sentence)
