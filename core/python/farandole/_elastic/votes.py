"""The messages by which the members of an epoch decide about the next one, and their form on the wire: JSON. Pure.

    REPORT     my epoch has ended, and this is where I listen; again and again, as a sign of life
    PREPARE    I want to decide, with this ballot
    PROMISE    no lower ballot gets my vote any more; my last vote, if there was one
    ACCEPT     vote for this value, with this ballot
    ACCEPTED   it has my vote
    REFUSED    a higher ballot has my promise
    DECIDED    the next epoch

Each carries the members that its sender knows to be dead.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from farandole._elastic.epochs import Epoch, Report

Ballot = tuple[int, int]
"""A round, and the member that proposes; the larger one wins."""

NO_BALLOT: Ballot = (0, -1)


class Kind(Enum):
    """Of a message."""

    REPORT = "report"
    PREPARE = "prepare"
    PROMISE = "promise"
    ACCEPT = "accept"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    DECIDED = "decided"


@dataclass(frozen=True)
class Message:
    """The fields of other kinds than its own are empty."""

    kind: Kind
    instance: int  # the number of the epoch that has ended: the members of that one decide about the next one
    dead: frozenset[int] = frozenset()
    ballot: Ballot = NO_BALLOT  # REFUSED: the one that has the promise
    voted: Ballot = NO_BALLOT  # PROMISE: the ballot of the last vote
    value: Epoch | None = None  # PROMISE: of the last vote
    report: Report | None = None


def encode(message: Message) -> bytes:
    """One line."""
    fields: dict[str, Any] = {"kind": message.kind.value, "instance": message.instance, "dead": sorted(message.dead)}
    if message.ballot != NO_BALLOT:
        fields["ballot"] = message.ballot
    if message.value is not None:
        fields["voted"] = message.voted
        fields["value"] = [message.value.number, message.value.members, message.value.store]
    if (report := message.report) is not None:
        fields["report"] = [report.member, report.store, sorted(report.suspects), report.leaving]
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(data: bytes) -> Message:
    """Raises ValueError for what is no message."""
    try:
        fields = json.loads(data)
        instance = _number(fields["instance"])
        value, report = fields.get("value"), fields.get("report")
        return Message(
            Kind(fields["kind"]),
            instance,
            frozenset(map(_number, fields["dead"])),
            _ballot(fields.get("ballot", NO_BALLOT)),
            _ballot(fields.get("voted", NO_BALLOT)),
            None if value is None else Epoch(_number(value[0]), tuple(map(_number, value[1])), str(value[2])),
            None if report is None else _report(instance, report),
        )
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError) as error:
        raise ValueError("a message about the membership lacks a field") from error


def _report(instance: int, fields: list[Any]) -> Report:
    member, store, suspects, leaving = fields
    return Report(instance, _number(member), str(store), frozenset(map(_number, suspects)), leaving is True)


def _ballot(found: Any) -> Ballot:
    turn, member = found
    return _number(turn), _number(member)


def _number(found: Any) -> int:
    if type(found) is not int:
        raise ValueError(f"{found!r} is no number")
    return found
