"""A majority of the members of an epoch decides about the next one, where no launcher of ours is there. Pure.

For each epoch one decision is made, by single-decree Paxos (Lamport, "Paxos Made Simple", 2001) among the members of
the epoch that has ended. `Deciding` is one member's part in it. A member whose epoch has ended reports to all others.
The lowest member that has reported proposes, once each member has reported, is dead, or has been silent for too long;
where it does not get there, the next one tries. A member that still computes is waited for.

A quorum is one of these sets:

    majority   more than half of the members; of exactly half of them, the half that has the lowest member ("dynamic-
               linear voting", Jajodia and Mutchler, 1990)
    the living all members that are not certainly dead. Certain is only the word of the kernel of the same host: the
               process has closed its listener. It never opens another one, so it never goes on. It may tell others

Two different worlds never both go on after one epoch:

 1. Two majorities have a member in common. Two sets of the living have all members in common that live now. So Paxos'
    own argument holds: the later ballot hears of the vote in the earlier one.
 2. A majority M has voted for X, and the living L have no member of M. Then all of M are dead, the proposer of X among
    them, since a proposer votes for its own value. A member of L that knows X already answers with X. The others
    learn nothing of it later: a message has the dead that its sender knows, and each receiver ignores these from then
    on, before it answers. So no answer of L counts for the living unless it came after that. X is forgotten with all
    that knew it.
 3. The living L have voted for X, and a majority M that promises a later ballot has no member of L. Then all of M are
    dead, the proposer of that ballot among them. A member of L that voted for X had made that proposer no promise
    before, and ignores it afterwards.

A majority among those that are not dead would be no quorum: one partition after some deaths, and both sides had one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from farandole._elastic.epochs import Epoch, Member, MembershipError, Report
from farandole._elastic.votes import NO_BALLOT, Ballot, Kind, Message

_SUSPECTED_PART = 0.3  # of the silence that a member is allowed, where the core has lost it, or another of its host
_BEATS = 5  # reports in that time, while a decision is under way


@dataclass(frozen=True)
class Timing:
    """Seconds."""

    timeout_s: float = 600.0  # for the decision
    silence_s: float = 5.0  # of a member on another host, until it is left out

    @property
    def beat_s(self) -> float:
        """Between two reports; also how long a proposer has, and how long one that knows the decision stays."""
        return self.silence_s / _BEATS


@dataclass
class _Peer:
    """One member's knowledge about another one."""

    heard_s: float  # when it last gave a sign of life
    report: Report | None = None
    is_connected: bool = False  # its kernel has our connection
    is_refused: bool = False  # its kernel says that nobody listens there
    knows: bool = False  # the decision


@dataclass
class _Proposal:
    """A ballot of this member's own."""

    ballot: Ballot
    fence: frozenset[int]  # the dead that the other members ignore before they answer
    promises: dict[int, tuple[Ballot, Epoch | None]]
    value: Epoch | None = None  # once a quorum has promised
    votes: set[int] | None = None


class Deciding:
    """One member's part in the decision about the epoch after `last`. Times are those of any clock that only grows.

    Messages to other members are collected in `outgoing`. They may be lost, late, doubled, and in another order.
    """

    def __init__(
        self,
        job: Sequence[Member],
        last: Epoch,
        report: Report,
        history: Mapping[int, Epoch],
        dead: set[int],
        timing: Timing,
        now: float,
    ) -> None:
        """history: decided epochs by number. dead: certainly; shared with later decisions, and added to here."""
        self.last, self.dead, self.outgoing = last, dead, list[tuple[int, Message]]()
        self.decided: Epoch | None = None
        self._me, self._report, self._history, self._timing = report.member, report, history, timing
        self._hosts = {member.number: member.host for member in job}
        self._job = job
        self._peers = {number: _Peer(now) for number in last.members if number != self._me}
        self._promised = self._voted = NO_BALLOT
        self._value: Epoch | None = None
        self._proposal: _Proposal | None = None
        self._attempts = 0
        self._began_s = self._not_before_s = now
        self._ready_s: float | None = None  # since when a proposal could be made
        self._next_beat_s = now + timing.beat_s
        self._decided_s = 0.0
        self.next_look_s = now  # `tick` has something to do then, at the latest

    # ---- signs from the transport

    def on_connected(self, number: int, now: float) -> None:
        """Its kernel has taken our connection."""
        if peer := self._peers.get(number):
            peer.is_connected, peer.is_refused, peer.heard_s = True, False, now
            self._send(number, Kind.REPORT, report=self._report)

    def on_disconnected(self, number: int, now: float, is_refused: bool = False) -> None:
        """The connection has ended, or cannot be made. is_refused: the kernel of another host says so."""
        if peer := self._peers.get(number):
            if peer.is_connected:
                peer.heard_s = now
            peer.is_connected, peer.is_refused = False, is_refused

    def on_death(self, number: int, now: float) -> None:
        """The kernel of this host says that its process is gone."""
        self._bury({number}, now)

    def tick(self, now: float) -> None:
        """Do what is due. Called after each of the other signs, too."""
        if self.decided is not None:
            self.next_look_s = self._decided_s + self._timing.beat_s
            return
        if now >= self._next_beat_s:
            self._next_beat_s = now + self._timing.beat_s
            self._tell_all(Kind.REPORT, report=self._report)
        self.next_look_s = min(self._next_beat_s, self.deadline_s)
        self._consider(now)

    def take_over(self, before: Deciding, now: float) -> None:
        """The connections are those of the decision before, in which this member has just taken part."""
        for number, peer in before._peers.items():
            if peer.is_connected:
                self.on_connected(number, now)
            elif peer.is_refused:
                self.on_disconnected(number, now, is_refused=True)

    # ---- the result

    @property
    def report(self) -> Report:
        """This member's own."""
        return self._report

    @property
    def deadline_s(self) -> float:
        """After it, and without a decision, the member gives up for good."""
        return self._began_s + self._timing.timeout_s

    def is_settled(self, now: float) -> bool:
        """Returns whether it is decided, and the other members know, as far as they can be told."""
        if self.decided is None:
            return False
        if now >= self._decided_s + self._timing.beat_s:
            return True
        return all(
            peer.knows or number in self.dead or peer.report is None or self._is_silent(number, now)
            for number, peer in self._peers.items()
        )

    def unheard(self, now: float) -> tuple[list[int], list[int]]:
        """Members that are alive and have not reported; members that cannot be reached."""
        living = [number for number in self._peers if number not in self.dead]
        unreachable = [
            number
            for number in living
            if self._is_silent(number, now) or not (self._peers[number].is_connected or self._peers[number].report)
        ]
        late = [number for number in living if self._peers[number].report is None and number not in unreachable]
        return late, unreachable

    # ---- messages

    def receive(self, sender: int, message: Message, now: float) -> None:
        """A message of another member. One of a member that is dead is ignored: see above."""
        if sender in self.dead:
            return
        self._bury(message.dead, now)
        if message.kind == Kind.DECIDED:
            self._hear_decision(sender, message, now)
        elif message.instance < self.last.number:
            self._answer_late_one(sender, message.instance)
        elif message.instance == self.last.number and (peer := self._peers.get(sender)):
            peer.heard_s, peer.is_refused = now, False
            if self.decided is not None:
                self._send(sender, Kind.DECIDED, value=self.decided)
            self._hear(sender, peer, message, now)

    def _hear(self, sender: int, peer: _Peer, message: Message, now: float) -> None:
        if message.kind == Kind.REPORT and message.report is not None:
            if peer.report is None and self.decided is None:  # it may have come too late for ours
                self._send(sender, Kind.REPORT, report=self._report)
            peer.report = message.report
        elif message.kind == Kind.PREPARE:
            self._promise(sender, message.ballot, now)
        elif message.kind == Kind.ACCEPT:
            self._vote(sender, message, now)
        elif message.kind == Kind.REFUSED:
            self._yield_to(message.ballot, now)
        elif (proposal := self._proposal) and message.ballot == proposal.ballot:
            if message.kind == Kind.PROMISE and proposal.votes is None:
                proposal.promises[sender] = message.voted, message.value
            elif message.kind == Kind.ACCEPTED and proposal.votes is not None:
                proposal.votes.add(sender)
            self._advance(now)

    def _hear_decision(self, sender: int, message: Message, now: float) -> None:
        value = message.value
        if value is None or value.number <= self.last.number:
            return
        if value.number == self.last.number + 1 and (peer := self._peers.get(sender)):
            peer.heard_s, peer.knows = now, True
        if self.decided is None:
            self._decide(value, now)

    def _answer_late_one(self, sender: int, instance: int) -> None:
        """It has missed a decision that this member knows."""
        if decided := self._history.get(instance + 1):
            self.outgoing.append((sender, Message(Kind.DECIDED, instance, frozenset(self.dead), value=decided)))

    def _promise(self, sender: int, ballot: Ballot, now: float) -> None:
        if ballot < self._promised:
            self._send(sender, Kind.REFUSED, ballot=self._promised)
            return
        self._promised = ballot
        self._yield_to(ballot, now)
        self._send(sender, Kind.PROMISE, ballot=ballot, voted=self._voted, value=self._value)

    def _vote(self, sender: int, message: Message, now: float) -> None:
        if message.ballot < self._promised:
            self._send(sender, Kind.REFUSED, ballot=self._promised)
            return
        self._promised = self._voted = message.ballot
        self._value = message.value
        self._yield_to(message.ballot, now)
        self._send(sender, Kind.ACCEPTED, ballot=message.ballot)

    # ---- proposing

    def _consider(self, now: float) -> None:
        """Propose, where that is due and this member's turn."""
        if not self._is_ready(now):
            self._ready_s = None
            return
        if self._ready_s is None:
            self._ready_s = now
        place = sum(1 for number in self._heard(now) if number < self._me)
        due = max(self._ready_s + place * self._timing.beat_s, self._not_before_s)
        if now >= due:
            self._propose(now)
        else:
            self.next_look_s = min(self.next_look_s, due)

    def _is_ready(self, now: float) -> bool:
        """Returns whether nobody is left to wait for."""
        someone_is_silent = False
        for number, peer in self._peers.items():
            if number in self.dead:
                continue
            if self._is_silent(number, now):
                someone_is_silent = True
            elif peer.report is None:
                if not peer.is_connected:
                    self.next_look_s = min(self.next_look_s, peer.heard_s + self._patience_s(number))
                return False
        return not someone_is_silent or self._is_quorum(self._heard(now), frozenset())

    def _propose(self, now: float) -> None:
        self._attempts += 1
        self._promised = (self._promised[0] + 1, self._me)
        fence = frozenset(self.dead)
        self._proposal = _Proposal(self._promised, fence, {self._me: (self._voted, self._value)})
        self._retry_at(now)
        self._tell_all(Kind.PREPARE, ballot=self._promised)
        self._advance(now)

    def _advance(self, now: float) -> None:
        """Take the next step of our own ballot, if a quorum has answered."""
        proposal = self._proposal
        if proposal is not None and proposal.votes is None and self._is_quorum(proposal.promises, proposal.fence):
            voted, value = max(proposal.promises.values(), key=lambda promise: promise[0])
            if voted == NO_BALLOT or value is None:
                value = self._free_value(now)
            proposal.value, proposal.votes, proposal.fence = value, {self._me}, frozenset(self.dead)
            self._voted, self._value = proposal.ballot, value
            self._tell_all(Kind.ACCEPT, ballot=proposal.ballot, value=value)
        if proposal is not None and proposal.votes is not None and self._is_quorum(proposal.votes, proposal.fence):
            assert proposal.value is not None
            self._decide(proposal.value, now)

    def _free_value(self, now: float) -> Epoch:
        reports = {number: self._peers[number].report for number in self._heard(now) if number != self._me}
        reports[self._me] = self._report
        staying = {number: report for number, report in reports.items() if report is not None and not report.leaving}
        members = tuple(sorted(staying))
        return Epoch(self.last.number + 1, members, staying[members[0]].store if members else "")

    def _is_quorum(self, numbers: Iterable[int], fence: frozenset[int]) -> bool:
        """Returns whether these are one. fence: the dead that all of them ignore."""
        members, answered = self.last.members, set(numbers)
        if fence and answered.issuperset(set(members) - fence):
            return True
        return 2 * len(answered) + (members[0] in answered) > len(members)

    def _yield_to(self, ballot: Ballot, now: float) -> None:
        """Another member's ballot is under way; give it time."""
        if ballot[1] == self._me:
            return
        if self._proposal is not None and self._proposal.ballot < ballot:
            self._proposal = None
        self._promised = max(self._promised, ballot)
        self._retry_at(now)

    def _retry_at(self, now: float) -> None:
        """Later after each attempt, and for each member at another time, so that one of them has enough time."""
        members = self.last.members
        share = 1 + members.index(self._me) / len(members)
        self._not_before_s = now + self._timing.beat_s * share * max(1, self._attempts)

    # ---- the others

    def _heard(self, now: float) -> list[int]:
        """Members that have reported and are alive, as far as this one knows; itself, too."""
        return [
            number
            for number in self.last.members
            if number == self._me
            or (self._peers[number].report and number not in self.dead and not self._is_silent(number, now))
        ]

    def _is_silent(self, number: int, now: float) -> bool:
        """Returns whether it gives no sign of life: its kernel, while it computes; itself, once it has reported."""
        peer = self._peers[number]
        if peer.is_refused:
            return True
        return not (peer.report is None and peer.is_connected) and now - peer.heard_s >= self._patience_s(number)

    def _patience_s(self, number: int) -> float:
        """Shorter for the hosts of members that the core has lost: it has waited itself."""
        reports = [self._report, *(peer.report for peer in self._peers.values() if peer.report)]
        hosts = {self._hosts[suspect] for report in reports for suspect in report.suspects if suspect in self._hosts}
        is_suspected = self._peers[number].report is None and self._hosts[number] in hosts
        return self._timing.silence_s * (_SUSPECTED_PART if is_suspected else 1)

    def _bury(self, numbers: Iterable[int], now: float) -> None:
        """These are dead; an attempt that counted on one of them starts anew."""
        new = set(numbers) - self.dead - {self._me}
        self.dead |= new
        if new & self._peers.keys() and self._proposal is not None:
            self._proposal = None
            self._not_before_s = now

    def _decide(self, value: Epoch, now: float) -> None:
        self.decided, self._decided_s, self._proposal = value, now, None
        self._tell_all(Kind.DECIDED, value=value)

    # ---- sending

    def _tell_all(
        self,
        kind: Kind,
        ballot: Ballot = NO_BALLOT,
        value: Epoch | None = None,
        report: Report | None = None,
    ) -> None:
        message = Message(kind, self.last.number, frozenset(self.dead), ballot, NO_BALLOT, value, report)
        self.outgoing += [(number, message) for number in self._peers if number not in self.dead]

    def _send(
        self,
        number: int,
        kind: Kind,
        ballot: Ballot = NO_BALLOT,
        voted: Ballot = NO_BALLOT,
        value: Epoch | None = None,
        report: Report | None = None,
    ) -> None:
        message = Message(kind, self.last.number, frozenset(self.dead), ballot, voted, value, report)
        self.outgoing.append((number, message))


class Majority:
    """One member's part in all decisions of a job, one after the other."""

    def __init__(self, job: Sequence[Member], me: int, min_np: int, timing: Timing) -> None:
        """job: all members of epoch 0."""
        self.dead: set[int] = set()
        self.history = {0: Epoch(0, tuple(member.number for member in job))}
        self.deciding: Deciding | None = None
        self._job = {member.number: member for member in job}
        self._me, self._min_np, self._timing = me, min_np, timing

    def begin(self, report: Report, now: float) -> Deciding:
        """This member's epoch has ended."""
        last, job = self.history[report.epoch], list(self._job.values())
        self.deciding = Deciding(job, last, report, self.history, self.dead, self._timing, now)
        return self.deciding

    def result(self, now: float) -> Epoch | None:
        """The next epoch, once it is decided, and the others know. REQUIRES `begin`.

        Raises MembershipError where this member does not go on.
        """
        deciding = self.deciding
        assert deciding is not None
        epoch = deciding.decided
        if epoch is None and now >= deciding.deadline_s:
            raise MembershipError(self._complaint(deciding, now))
        if epoch is None or not deciding.is_settled(now):
            return None
        self.history[epoch.number] = epoch
        if deciding.report.leaving:
            return epoch
        self._check(epoch)
        if self.dead.isdisjoint(epoch.members):
            return epoch
        self.begin(replace(deciding.report, epoch=epoch.number), now).take_over(deciding, now)
        return None  # its world cannot start, since one of its members is dead already

    def _check(self, epoch: Epoch) -> None:
        left, size = len(epoch.members), len(self._job)
        if self._me not in epoch.members:
            raise MembershipError(
                f"{self._job[self._me]} is not in epoch {epoch.number}: the others did not hear from it in time, and "
                f"{left} of {size} ranks go on; look at this host's network, and whether the process was stopped"
            )
        if left < self._min_np:
            raise MembershipError(
                f"{left} of {size} ranks are left after epoch {epoch.number - 1}, and FARANDOLE_MIN_NP asks for "
                f"{self._min_np}: start the job again from its last checkpoint, or allow fewer ranks"
            )

    def _complaint(self, deciding: Deciding, now: float) -> str:
        late, unreachable = deciding.unheard(now)
        number, waited = deciding.last.number + 1, f"{self._timing.timeout_s:g} s"
        if unreachable:
            answered = (
                len(deciding.last.members)
                - len(late)
                - len(unreachable)
                - len(self.dead.intersection(deciding.last.members))
            )
            return (
                f"{self._job[self._me]} could not reach {self._named(unreachable)} for epoch {number} within {waited}, "
                f"and {answered} of {len(deciding.last.members)} ranks are no majority, so another part of the job may "
                "go on without them; look at the network between the hosts, and start again from the last checkpoint"
            )
        if late:
            return (
                f"{self._named(late)} did not come to epoch {number} within {waited}, although the process is there; "
                "look at what it does. FARANDOLE_ELASTIC_TIMEOUT is how long the others wait for a step to end"
            )
        return (
            f"{self._job[self._me]} heard no decision about epoch {number} within {waited}, although it reaches all "
            "other ranks; look for ranks that have been stopped, and start again from the last checkpoint"
        )

    def _named(self, numbers: list[int]) -> str:
        shown = [str(self._job[number]) for number in numbers[:3]]
        return " and ".join(shown) + (f" and {len(numbers) - 3} more" if len(numbers) > 3 else "")
