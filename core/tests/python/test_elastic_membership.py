"""A process's membership of an elastic job, as far as it needs no world."""

from __future__ import annotations

import os

import pytest
from farandole._elastic.epochs import Epoch, Member
from farandole._elastic.membership import Membership


def test_the_processes_of_members_that_are_gone_are_watched_no_longer():
    membership = Membership.__new__(Membership)  # which would meet the others
    membership._me, membership._watched, membership.epoch = 0, {}, Epoch(0, (0, 1, 2))
    membership._members = {each: Member(each, "a" if each < 2 else "b", "h", os.getpid()) for each in range(3)}
    membership._watch_newcomers()
    assert membership._watched.keys() == {0, 1}, "those of this host"
    gone, membership.epoch = membership._watched[1], Epoch(1, (0, 2, 3))
    membership._members[3] = Member(3, "a", "h", os.getpid())
    membership._watch_newcomers()
    assert membership._watched.keys() == {0, 3}
    if gone not in membership._watched.values():  # else its number is used again
        with pytest.raises(OSError):
            os.fstat(gone)
    for descriptor in membership._watched.values():
        os.close(descriptor)
