"""Connects a member to the launcher of `farandole run --min-np`, which decides the epochs in launch/membership.py."""

from __future__ import annotations

import select
from contextlib import suppress

from farandole._elastic.epochs import Epoch, Member, MembershipError, Report
from farandole._start import membership_channel

_LOOK_EVERY_S = 0.2  # only so that Ctrl-C interrupts a thread other than the main one


class Lease:
    """A member's connection to the launcher, which lasts as long as the process."""

    def __init__(self, name: str, me: Member, members: dict[int, Member]) -> None:
        """Connect to the launcher at an abstract name. Raises OSError if it cannot be reached.

        `members` are those of the epoch; `next_epoch` adds to them.
        """
        self._connection, self._members = membership_channel.connect(name), members
        self._poll = select.poll()
        self._poll.register(self._connection, select.POLLIN)
        about_me = {"host": me.host, "host_name": me.host_name, "pid": me.pid}
        membership_channel.send(self._connection, {"kind": "hello", "member": me.number, "about": about_me})

    def begin(self) -> None:
        """Tell the launcher that from now on this rank can go on if another one is lost."""
        self._tell({"kind": "begin"})

    def pause(self) -> None:
        """Tell the launcher that for now this rank cannot go on if another one is lost."""
        with suppress(MembershipError):  # the launcher has ended, so this rank will end, too
            self._tell({"kind": "pause"})

    def next_epoch(self, report: Report) -> Epoch:
        """Return the epoch after the one that has ended. Blocks until it is decided; Ctrl-C interrupts.

        Raises MembershipError if this member is not in it, or if it cannot be decided.
        """
        self._tell(
            {
                "kind": "report" if report.epoch >= 0 else "join",
                "epoch": report.epoch,
                "store": report.store,
                "suspects": sorted(report.suspects),
                "leaving": report.leaving,
            }
        )
        while True:
            message = self._next_message()
            if message["kind"] == "over":
                raise SystemExit(0)  # the job has ended before this newcomer was needed
            if message["kind"] == "end":
                raise MembershipError(message["why"])
            if message["kind"] == "leave":  # the others wait for new ranks, and this one need not
                return Epoch(report.epoch + 1, tuple(message["members"]))
            if message["kind"] == "epoch" and message["number"] > report.epoch:
                members = tuple(message["members"])
                for number, about in zip(members, message["about"], strict=True):
                    self._members.setdefault(number, Member(number, **about))
                return Epoch(message["number"], members, message["store"])

    def has_news(self) -> bool:
        """Return whether newcomers wait. The launcher reports this once."""
        found = False
        while self._poll.poll(0):
            found |= self._next_message()["kind"] == "update"
        return found

    def _tell(self, message: membership_channel.Message) -> None:
        try:
            membership_channel.send(self._connection, message)
        except OSError as error:
            raise _gone() from error

    def _next_message(self) -> membership_channel.Message:
        while not self._poll.poll(1000 * _LOOK_EVERY_S):
            pass
        message = membership_channel.receive(self._connection)
        if message is None:
            raise _gone()
        return message


def _gone() -> MembershipError:
    return MembershipError("this rank's launcher has ended, so the job cannot go on; start it again")
