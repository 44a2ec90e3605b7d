"""Carries the messages of majority.py between the processes of a job that no launcher of ours watches.

Each member listens as long as the job lasts: at an abstract Unix socket for members of its host, at a TCP port for the
others. While the job runs without a fault nobody accepts, and no thread runs; the kernel takes connections. The name of
the Unix socket goes with the process, also where it is killed, so a refused connection is a certain death.
"""

from __future__ import annotations

import hmac
import json
import os
import selectors
import socket
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial

from farandole._elastic.epochs import Epoch, Member, MembershipError, Report
from farandole._elastic.links import PROOF_S, Called, Caller, listen
from farandole._elastic.majority import Majority, Timing
from farandole._elastic.votes import decode, encode
from farandole._start.proof import ProofError

_MOST_STRANGERS = 128  # connections without a proof; one more closes the oldest one
_LONGEST_SLEEP_S = 0.2  # for Ctrl-C, where the main thread is another one


class MajorityAuthority:
    """See `epochs.Authority`."""

    def __init__(
        self,
        members: Sequence[Member],
        me: int,
        job_key: bytes,
        min_np: int,
        address: str,
        timeout_s: float,
        silence_s: float = 5.0,
        *,
        exchange: Callable[[bytes], list[bytes]],
    ) -> None:
        """Collective.

        Args:
            members: of epoch 0, in ascending order.
            me: this member's number.
            job_key: the secret of the ranks.
            min_np: the fewest members with which the job goes on; equal on all.
            address: where other hosts reach this one; of no use where all members are on one.
            timeout_s: for a decision, the end of a step of the slowest member included.
            silence_s: after which a member of another host is left out.
            exchange: tells all members some bytes, and returns those of all, by their numbers.

        Raises OSError where this process cannot listen; ValueError where min_np differs.
        """
        self._me, self._timing = me, Timing(timeout_s, silence_s)
        self._key = hmac.digest(job_key, b"farandole peers", "sha256")
        self._majority = Majority(members, me, min_np, self._timing)
        self._listeners: list[socket.socket] = []
        self.sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()  # a forked child closes them
        _authorities.add(self)
        mine = {"min_np": min_np, "unix": self._listen(f"unix:farandole-{os.getuid()}-{os.urandom(12).hex()}")}
        if len({member.host for member in members}) > 1:
            mine["tcp"] = self._listen(f"tcp:{address}")
        said = [json.loads(each) for each in exchange(json.dumps(mine).encode())]
        for rank, each in enumerate(said):
            if each["min_np"] != min_np:
                self.close()
                raise ValueError(
                    f"FARANDOLE_MIN_NP is {min_np} on rank {me} and {each['min_np']} on rank {rank}: set it alike on "
                    "all ranks"
                )
        host = next(member.host for member in members if member.number == me)
        self._endpoints = {
            member.number: each["unix"] if member.host == host else each["tcp"]
            for member, each in zip(members, said, strict=True)
        }

    def begin(self) -> None:
        """See `epochs.Authority`. A member that is gone is not waited for, wherever it was."""

    def pause(self) -> None:
        """See `epochs.Authority`. Members that go on without this one wait for it as long as its process is there."""

    def has_news(self) -> bool:
        """See `epochs.Authority`. Only a launcher of ours has newcomers."""
        return False

    def next_epoch(self, report: Report) -> Epoch:
        """See `epochs.Authority`."""
        meeting = _Meeting(self._majority, self._me, self._endpoints, self._key, self._timing, self._listeners)
        self.sockets = meeting.sockets
        try:
            return meeting.run(report)
        except MembershipError:
            self.close()  # the others see that this one is gone
            raise
        finally:
            meeting.close()

    def close(self) -> None:
        """Listen no more: for the others this member is dead from now on."""
        for each in self._listeners:
            each.close()
        self._listeners.clear()

    def forget(self) -> None:
        """In a forked child: the names and the connections are the parent's alone."""
        self.close()
        for each in list(self.sockets):
            each.close()

    def _listen(self, endpoint: str) -> str:
        try:
            listener, whole = listen(endpoint)
        except OSError as error:
            self.close()
            raise OSError(
                error.errno,
                f"rank {self._me} cannot listen at {endpoint} for the other ranks of this elastic job "
                f"({error.strerror}); FARANDOLE_ADDRESS can name another address of this host",
            ) from error
        self._listeners.append(listener)
        return whole


_authorities: weakref.WeakSet[MajorityAuthority] = weakref.WeakSet()


def _after_fork() -> None:
    for each in list(_authorities):
        each.forget()


os.register_at_fork(after_in_child=_after_fork)


class _Meeting:
    """One call of `next_epoch`: its loop and its connections."""

    def __init__(
        self,
        majority: Majority,
        me: int,
        endpoints: dict[int, str],
        key: bytes,
        timing: Timing,
        listeners: Sequence[socket.socket],
    ) -> None:
        self.sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._majority, self._me, self._endpoints, self._key, self._timing = majority, me, endpoints, key, timing
        self._selector = selectors.DefaultSelector()
        self._callers: dict[int, Caller] = {}
        self._were_up: dict[int, tuple[bool, bool]] = {}  # as the decision knows them: is up, is refused
        self._called: list[Called] = []
        for each in listeners:
            self._selector.register(each, selectors.EVENT_READ, partial(self._accept, each))

    def run(self, report: Report) -> Epoch:
        """Until it is decided. Raises MembershipError."""
        deciding = self._majority.begin(report, time.monotonic())
        for number in deciding.last.members:
            if number != self._me and number not in self._majority.dead:
                attempt_s = self._timing.beat_s
                self._callers[number] = Caller(
                    self._me, self._endpoints[number], self._key, attempt_s, self._selector, self.sockets.add
                )
        while True:
            now = time.monotonic()
            self._look_after_connections(now)
            if (epoch := self._step(now)) is not None:
                return epoch
            for key, mask in self._selector.select(max(0.0, self._next_look_s(now) - now)):
                key.data(mask, time.monotonic())

    def close(self) -> None:
        """The job goes on, or ends."""
        for caller in self._callers.values():
            caller.end(0.0)
        for called in self._called:
            called.end()
        self._selector.close()

    def _next_look_s(self, now: float) -> float:
        deciding = self._majority.deciding
        assert deciding is not None
        looks = [deciding.next_look_s, now + _LONGEST_SLEEP_S]
        if deciding.decided is None:
            looks += [each.next_look_s for number, each in self._callers.items() if number not in self._majority.dead]
        return min(looks)

    def _step(self, now: float) -> Epoch | None:
        """Let the decision do and say what is due; returns the next epoch, once it is there."""
        while True:
            deciding = self._majority.deciding
            assert deciding is not None
            deciding.tick(now)
            messages, deciding.outgoing = deciding.outgoing, []
            for number, message in messages:
                if number in self._callers:
                    self._callers[number].say(encode(message))
            epoch = self._majority.result(now)
            if epoch is not None or self._majority.deciding is deciding:
                return epoch

    def _look_after_connections(self, now: float) -> None:
        """Make those that are missing, and tell the decision which are there."""
        assert self._majority.deciding is not None
        for number, caller in self._callers.items():
            if number in self._majority.dead:
                continue
            if self._majority.deciding.decided is None:
                caller.tick(now)
            is_up, is_refused = caller.is_up, caller.is_refused
            if is_refused and caller.is_local:
                caller.end(now)
                self._majority.deciding.on_death(number, now)
            elif (is_up, is_refused) != self._were_up.get(number):
                self._were_up[number] = is_up, is_refused
                if is_up:
                    self._majority.deciding.on_connected(number, now)
                else:
                    self._majority.deciding.on_disconnected(number, now, is_refused)

    def _accept(self, listener: socket.socket, _mask: int, now: float) -> None:
        for _ in range(_MOST_STRANGERS):
            try:
                connection = listener.accept()[0]
            except OSError:  # no more, or one that is gone already, or no descriptor is left
                break
            self.sockets.add(connection)
            try:
                made = Called(connection, self._key, self._selector, now + PROOF_S)
            except OSError:
                connection.close()
                continue
            made.watch(partial(self._hear, made))
            self._called.append(made)
        strangers = [each for each in self._called if not each.is_proved]
        for count, each in enumerate(strangers):
            if now >= each.until_s or count < len(strangers) - _MOST_STRANGERS:
                self._end(each)

    def _hear(self, called: Called, _mask: int, now: float) -> None:
        try:
            messages = [decode(data) for data in called.read()]
        except (OSError, ProofError, ValueError):
            self._end(called)
            return
        for message in messages:
            if called.sender in self._endpoints and called.sender != self._me:
                assert self._majority.deciding is not None
                self._majority.deciding.receive(called.sender, message, now)

    def _end(self, called: Called) -> None:
        if called in self._called:
            self._called.remove(called)
            called.end()
