"""The launcher's decisions about the membership of an elastic job."""

from __future__ import annotations

import random
import selectors
from typing import Any

import pytest
from farandole._start import membership_channel
from farandole.launch.membership import WARN_AFTER_SECONDS, Answer, Lease, MembershipServer

TIMEOUT_S = 60.0
ABOUT = {"host": "h", "host_name": "h", "pid": 7}


def begun(size: int, min_np: int = 1) -> Lease:
    """A job whose ranks are all inside of elastic.run."""
    lease = Lease(size, min_np, TIMEOUT_S)
    for rank in range(size):
        assert lease.hear(rank, {"kind": "hello", "member": rank, "about": ABOUT}, 0.0) == []
        assert lease.hear(rank, {"kind": "begin"}, 0.0) == []
    return lease


def join(lease: Lease, rank: int) -> list[Answer]:
    """The answers to a newcomer."""
    lease.hear(rank, {"kind": "hello", "member": rank, "about": ABOUT}, 1.0)
    return lease.hear(rank, {**report(rank, -1), "kind": "join"}, 1.0)


def report(rank: int, epoch: int = 0, suspects: list[int] | None = None, leaving: bool = False) -> dict[str, Any]:
    return {
        "kind": "report", "epoch": epoch, "store": f"unix:{rank}", "suspects": suspects or [], "leaving": leaving
    }  # fmt: skip


def epoch(number: int, members: list[int]) -> dict[str, Any]:
    store = f"unix:{members[0]}" if members else ""
    about = [ABOUT] * len(members)
    return {"kind": "epoch", "number": number, "members": members, "about": about, "store": store}


def all_say(lease: Lease, ranks: list[int], number: int, **content: Any) -> list[Answer]:
    """All answers to the reports of these ranks."""
    return [answer for rank in ranks for answer in lease.hear(rank, report(rank, number, **content), 1.0)]


@pytest.mark.parametrize("dead", [0, 1, 3])
def test_the_others_meet_at_the_lowest_of_them(dead: int) -> None:
    lease, others = begun(4), [rank for rank in range(4) if rank != dead]
    assert lease.survives(dead)
    assert lease.end(dead) == []
    assert all_say(lease, others[:2], 0) == []
    assert all_say(lease, others[2:], 0) == [(rank, epoch(1, others)) for rank in others]


def test_an_end_that_is_seen_last_decides() -> None:
    lease = begun(3)
    assert all_say(lease, [0, 2], 0) == []
    assert sorted(rank for rank, _ in lease.end(1)) == [0, 2]
    assert lease.members == (0, 2)


def test_a_rank_that_dies_after_its_report_is_not_in_the_epoch() -> None:
    lease = begun(4)
    lease.end(3)
    assert all_say(lease, [0, 1], 0) == []
    lease.end(1)
    assert lease.hear(2, report(2), 1.0) == [(rank, epoch(1, [0, 2])) for rank in (0, 2)]


def test_a_rank_that_dies_in_the_start_of_an_epoch_is_not_in_the_one_after_it() -> None:
    lease = begun(4)
    lease.end(3)
    all_say(lease, [0, 1, 2], 0)
    lease.end(0)
    assert all_say(lease, [1, 2], 1) == [(rank, epoch(2, [1, 2])) for rank in (1, 2)]


def test_a_report_of_an_earlier_epoch_counts_for_nothing() -> None:
    lease = begun(3)
    lease.end(2)
    all_say(lease, [0, 1], 0)
    assert all_say(lease, [0, 1], 0) == []
    assert lease.number == 1


def test_a_rank_that_leaves_is_told_who_goes_on() -> None:
    lease = begun(3)
    lease.hear(1, report(1, leaving=True), 1.0)
    assert all_say(lease, [0, 2], 0) == [(rank, epoch(1, [0, 2])) for rank in (1, 0, 2)]


def test_all_may_leave() -> None:
    lease = begun(2, min_np=2)
    assert all_say(lease, [0, 1], 0, leaving=True) == [(rank, epoch(1, [])) for rank in (0, 1)]


def test_newcomers_are_in_the_next_epoch() -> None:
    lease = begun(2)
    assert join(lease, 2) == [(rank, {"kind": "update"}) for rank in (0, 1)]
    join(lease, 3)
    answers = all_say(lease, [0, 1], 0)
    assert answers == [(rank, epoch(1, [0, 1, 2, 3])) for rank in range(4)]


def test_a_loss_right_after_a_newcomer_was_taken_in_is_survived() -> None:
    lease = begun(2)
    join(lease, 2)
    all_say(lease, [0, 1], 0)
    assert lease.survives(0) and lease.survives(2)


def test_a_newcomer_that_dies_is_not_and_matters_to_nobody() -> None:
    lease = begun(2, min_np=2)
    join(lease, 2)
    assert lease.survives(2) and lease.survives(2, is_mistake=True)
    assert lease.end(2) == []
    assert all_say(lease, [0, 1], 0) == [(rank, epoch(1, [0, 1])) for rank in (0, 1)]


def test_a_newcomer_takes_the_place_of_one_that_is_lost_meanwhile() -> None:
    lease = begun(3)
    join(lease, 3)
    lease.end(2)
    assert all_say(lease, [0, 1], 0) == [(rank, epoch(1, [0, 1, 3])) for rank in (0, 1, 3)]


def test_a_newcomer_that_comes_too_late_goes_home() -> None:
    lease = begun(2)
    join(lease, 2)
    assert lease.end(0) == []
    assert lease.end(1) == [(2, {"kind": "over"})]
    assert join(lease, 3) == [(3, {"kind": "over"})]


def test_newcomers_of_a_job_that_fails_are_told_why() -> None:
    lease = begun(2)
    join(lease, 2)
    assert lease.give_up("the job ends") == [(2, {"kind": "end", "why": "the job ends"})]


def test_too_few_are_told_so() -> None:
    lease = begun(4, min_np=3)
    assert lease.survives(3)
    lease.end(3)
    assert not lease.survives(2)
    restart = "start the job again from a checkpoint or FARANDOLE_COMMITS"
    why = f"2 of 4 ranks are left (ranks 0, 1), and --min-np asks for 3; {restart}"
    assert lease.reason_against(2) == why
    lease.end(2)
    assert all_say(lease, [0, 1], 0) == [(rank, {"kind": "end", "why": why}) for rank in (0, 1)]


def short(min_np: int = 3) -> Lease:
    """Three ranks, of which rank 1 is lost and the others wait for another one."""
    lease = begun(3, min_np)
    lease.may_grow = lambda: True
    assert lease.survives(1)
    lease.end(1)
    assert all_say(lease, [0, 2], 0, suspects=[1]) == []
    return lease


def test_too_few_wait_for_newcomers() -> None:
    lease = short()
    assert lease.next_due(5.0) == 0.0
    assert lease.tick(5.0) == (
        "farandole: 2 of 3 ranks are left (ranks 0, 2), and --min-np asks for 3; waiting for 1 more rank for at most "
        "60 s (--elastic-timeout).",
        [],
    )
    assert lease.tick(5.0 + TIMEOUT_S - 1) == ("", []) and lease.next_due(5.0) == TIMEOUT_S
    assert join(lease, 3) == [(rank, epoch(1, [0, 2, 3])) for rank in (0, 2, 3)]
    assert lease.next_due(99.0) is None and lease.tick(99.0 + TIMEOUT_S) == ("", [])
    assert lease.survives(2)


def test_newcomers_that_are_too_few_wait_too_and_may_die() -> None:
    lease = short(min_np=4)
    assert join(lease, 3) == []
    assert lease.survives(3) and lease.end(3) == []
    assert join(lease, 4) == []
    assert join(lease, 5) == [(rank, epoch(1, [0, 2, 4, 5])) for rank in (0, 2, 4, 5)]


def test_those_that_wait_may_die_but_for_the_last_one_that_has_the_state() -> None:
    lease = short()
    assert lease.survives(0) and lease.end(0) == []
    assert not lease.survives(2) and lease.reason_against(2).startswith(
        "0 of 3 ranks are left, and --min-np asks for 3"
    )
    join(lease, 3)
    assert lease.end(2) == [(3, {"kind": "over"})]


def test_the_wait_ends_with_a_sentence() -> None:
    why = "2 of 3 ranks are left (ranks 0, 2), and --min-np asks for 3, but no others have joined within 60 s; start"
    lease = short()
    lease.tick(5.0)
    sentence, answers = lease.tick(5.0 + TIMEOUT_S)
    assert sentence.startswith(f"farandole: {why}")
    assert [(rank, said["kind"], said["why"][: len(why)]) for rank, said in answers] == [
        (0, "end", why), (2, "end", why)
    ]  # fmt: skip
    lease = short()
    lease.tick(5.0)
    lease.may_grow = lambda: False
    assert "but no more ranks can be started" in lease.tick(5.1)[0]


def test_who_leaves_does_not_wait_for_newcomers() -> None:
    lease = begun(3, min_np=3)
    lease.may_grow = lambda: True
    all_say(lease, [0, 1], 0)
    assert lease.hear(2, report(2, leaving=True), 1.0) == [(2, {"kind": "leave", "members": [0, 1]})]
    assert lease.has_left(2)
    lease.end(2)
    assert join(lease, 3) == [(rank, epoch(1, [0, 1, 3])) for rank in (0, 1, 3)]


def test_the_change_after_the_reset_limit_ends_the_job() -> None:
    lease = begun(4)
    lease.reset_limit = 1
    lease.end(3)
    assert all_say(lease, [0, 1, 2], 0) == [(rank, epoch(1, [0, 1, 2])) for rank in range(3)]
    why = "the ranks change again, and --reset-limit 1 was reached, so the job ends; start the job again from a"
    assert lease.is_at_limit and not lease.survives(2) and lease.reason_against(2).startswith(why)
    assert join(lease, 4) == [(4, {"kind": "over"})]
    lease.end(2)
    answers = all_say(lease, [0, 1], 1)
    assert [(rank, said["kind"], said["why"][: len(why)]) for rank, said in answers] == [
        (0, "end", why), (1, "end", why)
    ]  # fmt: skip


def test_a_job_whose_ranks_are_not_inside_of_run_does_not_survive() -> None:
    lease = Lease(2, 1, TIMEOUT_S)
    assert not lease.survives(1)
    assert "while some ranks were outside of elastic.run" in lease.reason_against(1)
    lease.hear(0, {"kind": "begin"}, 0.0)  # after an exchange of all ranks
    assert lease.survives(1)
    lease.hear(0, {"kind": "pause"}, 0.0)
    assert not lease.survives(1)


def test_a_job_that_ends_answers_at_once_and_later() -> None:
    lease = begun(3)
    lease.hear(0, report(0), 1.0)
    end = {"kind": "end", "why": "the job ends"}
    assert lease.give_up("the job ends") == [(0, end)]
    assert lease.hear(1, report(1), 2.0) == [(1, end)]
    assert not lease.survives(2)


def test_a_rank_that_only_the_launcher_reaches_is_excluded() -> None:
    lease = begun(4)
    for rank, suspect in ((0, 3), (1, 3), (3, 0)):
        assert lease.hear(rank, report(rank, suspects=[suspect]), 1.0) == []
    answers = dict(lease.hear(2, report(2, suspects=[3]), 1.0))
    assert {rank: answers[rank] for rank in (0, 1, 2)} == dict.fromkeys((0, 1, 2), epoch(1, [0, 1, 2]))
    assert answers[3]["kind"] == "end" and "cannot reach rank 3" in answers[3]["why"]


def test_two_ranks_that_blame_each_other_try_again() -> None:
    lease = begun(2)
    lease.hear(0, report(0, suspects=[1]), 1.0)
    assert lease.hear(1, report(1, suspects=[0]), 1.0) == [(rank, epoch(1, [0, 1])) for rank in (0, 1)]


def test_a_late_rank_is_killed_at_the_deadline_and_the_others_go_on() -> None:
    lease = begun(3, min_np=2)
    lease.hear(0, report(0), 1.0)
    lease.hear(1, report(1), 2.0)
    lease.tick(1.0 + WARN_AFTER_SECONDS)
    assert lease.overdue(TIMEOUT_S) == ("", []) and lease.next_due(TIMEOUT_S) == 1.0
    sentence, late = lease.overdue(1.0 + TIMEOUT_S)
    assert late == [2]
    assert sentence.startswith("farandole: rank 2 did not notice within 60 s that epoch 0 has ended, so the launcher")
    assert lease.tick(1.0 + TIMEOUT_S) == ("", []) and lease.overdue(2.0 + TIMEOUT_S) == ("", [])
    assert lease.survives(2)
    assert lease.end(2) == [(rank, epoch(1, [0, 1])) for rank in (0, 1)]
    assert lease.next_due(2.0 + TIMEOUT_S) is None


def test_a_late_rank_that_comes_at_last_is_taken_along() -> None:
    """It was killed, but its report came first; its end is that of a member then."""
    lease = begun(3)
    all_say(lease, [0, 1], 0)
    lease.overdue(1.0 + TIMEOUT_S)
    assert lease.hear(2, report(2), 2.0 + TIMEOUT_S) == [(rank, epoch(1, [0, 1, 2])) for rank in range(3)]
    assert lease.survives(2)


def test_a_late_rank_that_cannot_be_killed_ends_the_job() -> None:
    lease = begun(3)
    all_say(lease, [0, 1], 0)
    lease.tick(1.0 + WARN_AFTER_SECONDS)
    lease.overdue(1.0 + TIMEOUT_S)
    due = lease.next_due(1.0 + TIMEOUT_S)
    assert due is not None and due > 1.0
    sentence, answers = lease.tick(1.0 + TIMEOUT_S + due)
    assert "rank 2 did not notice" in sentence and [rank for rank, _ in answers] == [0, 1]


def test_ranks_leave_only_where_enough_stay() -> None:
    lease = begun(4, min_np=2)
    assert lease.is_training and lease.can_spare([2, 3]) and not lease.can_spare([1, 2, 3])
    assert lease.can_spare([2, 3, 9])  # a newcomer is no member
    lease.end(0)
    assert lease.can_spare([3]) and not lease.can_spare([2, 3])
    assert not Lease(2, 1, TIMEOUT_S).is_training
    lease.hear(1, {"kind": "pause"}, 1.0)
    assert not lease.is_training


def test_one_that_left_has_not_finished() -> None:
    lease = begun(3)
    all_say(lease, [0, 1], 0)
    lease.hear(2, report(2, leaving=True), 1.0)
    assert lease.has_left(2) and not lease.has_finished(2)
    assert lease.has_finished(1) and not lease.has_left(1)
    assert not lease.has_finished(7)  # a newcomer that came too late


def test_who_is_late_is_said_once_and_ends_the_job_at_last() -> None:
    lease = begun(3, min_np=2)
    lease.hear(0, report(0), 1.0)
    assert lease.next_due(1.0) == WARN_AFTER_SECONDS
    assert lease.tick(5.0) == ("", [])
    assert lease.tick(1.0 + WARN_AFTER_SECONDS)[0] == ("farandole: waiting for ranks 1, 2, still inside a step (10 s).")
    assert lease.tick(2.0 + WARN_AFTER_SECONDS) == ("", [])
    sentence, answers = lease.tick(1.0 + TIMEOUT_S)
    assert sentence.startswith("farandole: ranks 1, 2 did not notice within 60 s that epoch 0 has ended")
    assert [rank for rank, _ in answers] == [0]
    assert lease.next_due(100.0) is None


@pytest.mark.parametrize("message", [{"kind": "report"}, {"kind": "report", "epoch": "x"}, report(0) | {"suspects": 3}])
def test_nonsense_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        begun(2).hear(0, message, 1.0)


def test_all_that_ranks_have_said_is_heard_before_an_end_is_judged() -> None:
    """Without a turn of the launcher's loop: a busy launcher may see the end of a rank first."""
    heard: list[tuple[int, str]] = []
    with selectors.DefaultSelector() as selector:
        server = MembershipServer(selector, lambda rank, message: heard.append((rank, message["kind"])))
        ranks = [membership_channel.connect(server.name) for _ in range(2)]
        for rank, connection in enumerate(ranks):
            membership_channel.send(connection, {"kind": "hello", "member": rank, "about": ABOUT})
            membership_channel.send(connection, {"kind": "begin"})
        server.drain()
        assert sorted(heard) == [(rank, kind) for rank in range(2) for kind in ("begin", "hello")]
        server.send(1, {"kind": "update"})
        assert membership_channel.receive(ranks[1]) == {"kind": "update"}
        ranks[0].close()
        ranks[1].send(b"no message")
        server.drain()
        server.send(1, {"kind": "update"})  # to a connection that was closed for nonsense
        assert membership_channel.receive(ranks[1]) is None
        ranks[1].close()


@pytest.mark.parametrize("seed", range(300))
def test_ranks_that_die_leave_and_join_at_any_time_get_one_membership(seed: int) -> None:
    """Each living rank learns each epoch that it is in, all the same; the job goes on while enough ranks live."""
    draw = random.Random(seed)
    size = draw.randint(1, 6)
    min_np = draw.choice([1, draw.randint(1, size)])
    lease = begun(size, min_np)
    lease.may_grow = lambda: min_np > 1
    at, alive, reported, joining = dict.fromkeys(range(size), 0), set(range(size)), set(), set()
    decided: dict[int, tuple[int, ...]] = {0: tuple(range(size))}

    def leave(rank: int) -> None:
        alive.discard(rank)
        joining.discard(rank)
        take(lease.end(rank))

    def take(answers: list[Answer]) -> None:
        for rank, message in answers:
            if message["kind"] == "over":
                assert rank in joining and alive == joining
                leave(rank)
            elif message["kind"] in ("end", "leave"):
                leave(rank)
            elif message["kind"] == "epoch":
                members = tuple(message["members"])
                assert len(members) >= min_np or not members
                assert decided.setdefault(message["number"], members) == members
                if rank in alive:
                    assert message["number"] == at[rank] + 1 or rank in joining
                    at[rank] = message["number"]
                    reported.discard(rank)
                    joining.discard(rank)
                    if rank not in members:
                        leave(rank)

    for _ in range(60):
        if draw.random() < 0.1 and alive - joining:
            at[len(at)] = -1
            alive.add(len(at) - 1)
            joining.add(len(at) - 1)
            take(join(lease, len(at) - 1))
        rank = draw.randrange(len(at))
        if rank not in alive:
            continue
        if draw.random() < 0.15:
            leave(rank)
        elif rank not in reported | joining:
            reported.add(rank)
            take(lease.hear(rank, report(rank, at[rank], leaving=draw.random() < 0.1), 1.0))
    for rank in sorted(alive - reported - joining):
        if rank in alive:
            reported.add(rank)
            take(lease.hear(rank, report(rank, at[rank]), 1.0))
    for now in (2.0, 2.0 + TIMEOUT_S):  # too few wait for so long
        take(lease.tick(now)[1])
    assert not joining and not alive & reported
    assert len({at[rank] for rank in alive}) <= 1
