"""The epochs of an elastic job, each a world with its own ranks, key and rendezvous. Pure.

A process keeps its member number for the whole job: its rank in epoch 0, or the next free number if it joined later.
Its rank in an epoch is its position among the members, in ascending order. The launcher, which sees the ends of all
ranks, decides each epoch exactly once (lease.py). A member that the launcher cannot reach ends.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from farandole._api.errors import MembershipError

__all__ = ["Epoch", "Member", "MembershipError", "Report", "key_of"]


@dataclass(frozen=True)
class Member:
    """One process of the job."""

    number: int  # its rank in epoch 0, or a larger number
    host: str  # identity of the host: equal for members of one host
    host_name: str  # for people
    pid: int

    def __str__(self) -> str:
        return f"rank {self.number} in order of start (host {self.host_name}, pid {self.pid})"


@dataclass(frozen=True)
class Epoch:
    """A decided membership."""

    number: int  # 0 at the start
    members: tuple[int, ...]  # ascending; the position of a member is its rank
    store: str = ""  # the rendezvous endpoint, at which rank 0 listens: "unix:<name>" or "tcp:<host>:<port>"


@dataclass(frozen=True)
class Report:
    """A member's message that its epoch has ended for it."""

    epoch: int  # the number of the epoch that has ended; -1 if the member is new
    member: int
    store: str  # where this member listens, in case it becomes rank 0 of the next epoch
    suspects: frozenset[int] = frozenset()  # members that it believes lost
    leaving: bool = False  # it was told to leave, so it is not in the next epoch


def key_of(epoch: Epoch, job_key: bytes) -> bytes:
    """Derive the key of an epoch's world, so that messages of another epoch, or of another decision, are refused."""
    text = f"farandole epoch {epoch.number} {epoch.members} {epoch.store}"
    return hmac.digest(job_key, text.encode(), "sha256")
