"""The membership of an elastic job. The launcher decides it, because it sees the ends of all ranks.

`Lease` makes the decisions and is pure; `MembershipServer` is this host's end of the channels to its ranks. The other
end is _elastic/lease.py; docs/design/elastic.md explains the protocol.
"""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from farandole._start import membership_channel, sockets
from farandole._start.membership_channel import Message

WARN_AFTER_SECONDS = 10.0
_EVICTION_SECONDS = 10.0  # from killing a late rank to its end
_RESTART = "start the job again from a checkpoint or FARANDOLE_COMMITS"
Answer = tuple[int, Message]
"""A rank of the start, and a message for it."""


@dataclass
class Lease:
    """The membership of one job. Ranks are member numbers: those of the start, then of new ranks."""

    size: int
    min_np: int
    timeout_s: float  # from the first report of an epoch's end to the last; and for new ranks where too few are left
    reset_limit: int | None = None  # the most epochs after the first one
    number: int = 0  # of the epoch
    members: tuple[int, ...] = ()
    may_grow: Callable[[], bool] = lambda: False  # new ranks may still come
    _begun: set[int] = field(default_factory=set)  # ranks inside of elastic.run, where they can go on without others
    _has_begun: bool = False  # the first to say so has exchanged something with all others there
    _ended: set[int] = field(default_factory=set)
    _about: dict[int, Message] = field(default_factory=dict)  # what each process has said of itself
    _newcomers: dict[int, Message] = field(default_factory=dict)  # that wait to join
    _left: set[int] = field(default_factory=set)  # as they were told to
    _evicted: set[int] = field(default_factory=set)
    _reports: dict[int, Message] = field(default_factory=dict)
    _reported_at: float | None = None
    _warned: bool = False
    _is_short: bool = False  # all members have reported, and are fewer than min_np: they wait for new ranks
    _short_since: float | None = None
    _why: str = ""  # the job ends

    def __post_init__(self) -> None:
        self.members = tuple(range(self.size))

    def survives(self, rank: int, is_mistake: bool = False) -> bool:
        """Return whether the others go on without this rank. An error of the program would happen again."""
        others = [each for each in self.living if each != rank]
        if rank not in self.members:  # one that has not joined yet
            return not self._why
        is_possible = not is_mistake and not self._why and not self.is_at_limit and self._begun.issuperset(self.living)
        return is_possible and len(others) >= self._fewest

    def reason_against(self, rank: int) -> str:
        """Why the others cannot go on without this rank, which has failed."""
        if self._why:
            return self._why
        left = [each for each in self.living if each != rank]
        if not self._begun.issuperset(self.living):
            return f"rank {rank} ended while some ranks were outside of elastic.run, so the job ends"
        if len(left) < self._fewest:
            return f"{self._too_few(left)}; {_RESTART}"
        if self.is_at_limit:
            return self._too_many_resets()
        return f"rank {rank} ended with an error of its program, which would happen again, so the job ends"

    @property
    def is_training(self) -> bool:
        """Return whether all ranks are inside of elastic.run, where they can go on without others."""
        return bool(self._begun) and self._begun.issuperset(self.living)

    @property
    def is_at_limit(self) -> bool:
        """Return whether the next change of the ranks ends the job."""
        return self.reset_limit is not None and self.number >= self.reset_limit

    @property
    def _fewest(self) -> int:
        """The ranks that must be left: one, which has the state, if new ranks can replace the lost ones."""
        return 1 if self.may_grow() else self.min_np

    def can_spare(self, ranks: Collection[int]) -> bool:
        """Return whether min_np ranks are left without these."""
        return len([each for each in self.living if each not in ranks]) >= self.min_np

    def has_left(self, rank: int) -> bool:
        """Return whether this rank has announced that it leaves, as requested."""
        return rank in self._left

    def has_finished(self, rank: int) -> bool:
        """Return whether this rank, which ended without an error, has finished its program."""
        return rank in self.members and rank not in self._left

    def has_lost(self, ranks: Collection[int]) -> bool:
        """Return whether all others have reported, and some of them have lost one of these ranks."""
        suspects = {each for report in self._reports.values() for each in report["suspects"]}
        return not suspects.isdisjoint(ranks) and set(self._late()) <= set(ranks)

    def hear(self, rank: int, message: Message, now: float) -> list[Answer]:
        """Handle a rank's message. Raises KeyError, TypeError or ValueError for an invalid one."""
        if message["kind"] == "hello":
            self._about[rank] = {name: message["about"][name] for name in ("host", "host_name", "pid")}
        elif message["kind"] == "begin":
            self._begun.update(range(self.size) if not self._has_begun else [rank])
            self._has_begun = True
        elif message["kind"] == "join":
            if self.is_at_limit:
                return self._tell_all({"kind": "over"}, [rank])
            self._newcomers[rank] = _content(message)
            if self._is_short:
                return self._decide()
            return self._tell_all({"kind": "update"}, self.living) or self._send_home()
        elif message["kind"] == "pause":
            self._begun.discard(rank)
        elif message["kind"] == "report" and rank in self.members and int(message["epoch"]) == self.number:
            self._reports[rank] = _content(message)
            self._reported_at = now if self._reported_at is None else self._reported_at
            return self._decide()
        return []

    def end(self, rank: int) -> list[Answer]:
        """The process of this rank has ended."""
        self._ended.add(rank)
        self._reports.pop(rank, None)
        self._newcomers.pop(rank, None)
        return self._decide()

    def give_up(self, why: str) -> list[Answer]:
        """The job ends: ranks that ask for another epoch get the reason."""
        self._why = self._why or why
        return self._decide()

    def next_due(self, now: float) -> float | None:
        """Seconds until `tick` must be called."""
        if self._is_short:
            return 0.0 if self._short_since is None else max(0.0, self._short_since + self.timeout_s - now)
        if self._reported_at is None:
            return None
        most_s = self.timeout_s + (_EVICTION_SECONDS if self._evicted.intersection(self._late()) else 0.0)
        limits = [most_s] if self._warned else [most_s, WARN_AFTER_SECONDS]
        return max(0.0, self._reported_at + min(limits) - now)

    def overdue(self, now: float) -> tuple[str, list[int]]:
        """The ranks to kill, because the others would wait forever, and a sentence for the user. Each is named once."""
        if self._reported_at is None or self._why or now - self._reported_at < self.timeout_s:
            return "", []
        late = self._late()
        new = [rank for rank in late if rank not in self._evicted]
        if not new or len(self.living) - len(late) < self._fewest or not self.is_training:
            return "", []
        self._evicted.update(new)
        waited_s = now - self._reported_at
        return (
            f"farandole: {_ranks(new)} did not notice within {waited_s:.0f} s that epoch {self.number} has ended, so "
            f"the launcher kills {'them' if len(new) > 1 else 'it'} and the others go on; FARANDOLE_ELASTIC_TIMEOUT is "
            "how long they wait."
        ), new

    def tick(self, now: float) -> tuple[str, list[Answer]]:
        """Time has passed: a sentence for the user, or "", and answers."""
        if self._why or self._reported_at is None:
            return "", []
        if self._is_short:
            return self._wait_for_more(now)
        waited_s = now - self._reported_at
        late = _ranks(self._late())
        if self._evicted.intersection(self._late()):
            waited_s -= _EVICTION_SECONDS
        if waited_s >= self.timeout_s:
            why = (
                f"{late} did not notice within {waited_s:.0f} s that epoch {self.number} has ended: look "
                "for steps that take so long; FARANDOLE_ELASTIC_TIMEOUT is how long the others wait"
            )
            return self._give_up_with(why)
        if waited_s >= WARN_AFTER_SECONDS and not self._warned:
            self._warned = True
            return f"farandole: waiting for {late}, still inside a step ({waited_s:.0f} s).", []
        return "", []

    def _wait_for_more(self, now: float) -> tuple[str, list[Answer]]:
        few = self._too_few(self.members)
        if self._short_since is None:
            self._short_since = now
            missing = self.min_np - len(self.members)
            more = f"{missing} more rank{'s' if missing > 1 else ''}"
            how_long = f"for at most {self.timeout_s:g} s (--elastic-timeout)"
            return f"farandole: {few}; waiting for {more} {how_long}.", []
        if not self.may_grow():
            return self._give_up_with(f"{few}, but no more ranks can be started; {_RESTART}")
        if now - self._short_since >= self.timeout_s:
            return self._give_up_with(f"{few}, but no others have joined within {self.timeout_s:g} s; {_RESTART}")
        return "", []

    def _give_up_with(self, why: str) -> tuple[str, list[Answer]]:
        return f"farandole: {why}.", self.give_up(why)

    @property
    def living(self) -> list[int]:
        """The members whose processes have not ended."""
        return [rank for rank in self.members if rank not in self._ended]

    def _late(self) -> list[int]:
        return [rank for rank in self.living if rank not in self._reports]

    def _decide(self) -> list[Answer]:
        if self._why:
            asking = [*self._take_reports(), *self._newcomers]
            self._newcomers.clear()
            return self._tell_all({"kind": "end", "why": self._why}, asking)
        if self._reported_at is None or self._late():
            return self._send_home()
        self._left.update(rank for rank, report in self._reports.items() if report["leaving"])
        chosen = tuple(rank for rank in self.members if rank in self._reports and rank not in self._left)
        unreachable = self._unreachable(chosen, self._reports)
        chosen = tuple(rank for rank in chosen if rank != unreachable)
        if chosen and self.is_at_limit:
            return self.give_up(self._too_many_resets())
        answers = []
        if unreachable is not None:
            why = f"the other ranks cannot reach rank {unreachable}, although its launcher can; they go on without it"
            answers = self._tell_all({"kind": "end", "why": why}, [unreachable])
            del self._reports[unreachable]
        if 0 < len(chosen) < self.min_np - len(self._newcomers):
            return answers + self._fall_short(chosen)
        return answers + self._form_epoch(chosen)

    def _fall_short(self, chosen: tuple[int, ...]) -> list[Answer]:
        """Too few ranks are left. They wait if others may join, except those that leave."""
        if not self.may_grow():
            return self.give_up(f"{self._too_few(chosen)}; {_RESTART}")
        leaving = [rank for rank in self._reports if rank not in chosen]
        self._is_short, self.members = True, chosen
        self._reports = {rank: self._reports[rank] for rank in chosen}
        return self._tell_all({"kind": "leave", "members": list(chosen)}, leaving)

    def _form_epoch(self, chosen: tuple[int, ...]) -> list[Answer]:
        reports = self._take_reports()
        newcomers = {}
        if chosen:
            newcomers, self._newcomers = self._newcomers, {}
        self.number, self.members = self.number + 1, (*chosen, *sorted(newcomers))
        self._begun.update(newcomers)  # they ask from inside of elastic.run
        epoch = {
            "kind": "epoch",
            "number": self.number,
            "members": list(self.members),
            "about": [self._about.get(rank) for rank in self.members],
            "store": reports[chosen[0]]["store"] if chosen else "",
        }
        return self._tell_all(epoch, [*reports, *newcomers]) + self._send_home()

    def _too_many_resets(self) -> str:
        return f"the ranks change again, and --reset-limit {self.reset_limit} was reached, so the job ends; {_RESTART}"

    def _too_few(self, left: Sequence[int]) -> str:
        are_left = f"{len(left)} of {self.size} ranks {'is' if len(left) == 1 else 'are'} left"
        which = f" (rank{'s' if len(left) > 1 else ''} {', '.join(map(str, left))})" if left else ""
        return f"{are_left}{which}, and --min-np asks for {self.min_np}"

    def _send_home(self) -> list[Answer]:
        """Dismiss new ranks whose job has ended meanwhile."""
        if self.living or not self._newcomers:
            return []
        waiting, self._newcomers = self._newcomers, {}
        return self._tell_all({"kind": "over"}, waiting)

    def _unreachable(self, chosen: Collection[int], reports: Mapping[int, Message]) -> int | None:
        """The rank that more than half of the others have lost, although it is alive; no rank has died or leaves."""
        if len(chosen) < len(self.members) or len(chosen) < 3:
            return None
        for rank in chosen:
            if 2 * sum(rank in reports[other]["suspects"] for other in chosen if other != rank) > len(chosen):
                return rank
        return None

    def _take_reports(self) -> dict[int, Message]:
        reports, self._reports, self._reported_at, self._warned = self._reports, {}, None, False
        self._is_short, self._short_since = False, None
        return reports

    @staticmethod
    def _tell_all(message: Message, ranks: Iterable[int]) -> list[Answer]:
        return [(rank, message) for rank in ranks]


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _content(message: Message) -> Message:
    """The content of a report, or of a wish to join."""
    suspects = frozenset(int(each) for each in message["suspects"])
    return {"store": str(message["store"]), "leaving": bool(message["leaving"]), "suspects": suspects}


class MembershipServer:
    """Receives the messages of the ranks of this host. Processes of other users are ignored."""

    def __init__(self, selector: selectors.BaseSelector, hear: Callable[[int, Message], None]) -> None:
        """Raises OSError."""
        self.name = f"farandole-membership-{os.urandom(16).hex()}"
        self._selector, self._hear = selector, hear
        self._accepted: set[socket.socket] = set()
        self._connections: dict[int, socket.socket] = {}  # by rank, of those that have said who they are
        self._listener = membership_channel.listen(self.name)
        self._listener.setblocking(False)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def drain(self) -> None:
        """Handle all messages that have arrived: a rank's end is judged by the messages before it."""
        self._accept()
        for connection in list(self._accepted):
            self._read(connection)

    def send(self, rank: int, message: Message) -> None:
        """Send to a rank of this host, if it is still there."""
        connection = self._connections.get(rank)
        if connection is not None:
            try:
                membership_channel.send(connection, message)
            except OSError:
                self._drop(connection)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # there is no other, or no descriptor is left
                return
            if not sockets.is_ours(connection):
                connection.close()
                continue
            connection.setblocking(False)
            self._accepted.add(connection)
            self._selector.register(connection, selectors.EVENT_READ, partial(self._read, connection))

    def _read(self, connection: socket.socket) -> None:
        """Read all messages that have arrived."""
        try:
            while connection in self._accepted:
                self._take(connection, membership_channel.receive(connection))
        except BlockingIOError:
            return
        except (KeyError, TypeError, ValueError, StopIteration):
            self._drop(connection)

    def _take(self, connection: socket.socket, message: Message | None) -> None:
        if message is None:
            self._drop(connection)
        elif message["kind"] == "hello":
            self._connections[int(message["member"])] = connection
            self._hear(int(message["member"]), message)
        else:
            rank = next(rank for rank, each in self._connections.items() if each is connection)
            self._hear(rank, message)

    def _drop(self, connection: socket.socket) -> None:
        self._connections = {rank: each for rank, each in self._connections.items() if each is not connection}
        if connection in self._accepted:
            self._accepted.remove(connection)
            self._selector.unregister(connection)
            connection.close()
