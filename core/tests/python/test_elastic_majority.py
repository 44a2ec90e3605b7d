"""Members without a launcher decide who goes on: the state machine step by step, and real processes on one host."""

import contextlib
import os
import signal
import socket
import statistics
import struct
import time

import pytest
from elastic_members import KEY, Members
from farandole._elastic.epochs import Epoch, Member, MembershipError, Report
from farandole._elastic.majority import Deciding, Majority, Timing
from farandole._elastic.peers import MajorityAuthority
from farandole._elastic.votes import Kind, Message, decode, encode

pytestmark = pytest.mark.timeout(120)

TIMING = Timing(timeout_s=60.0, silence_s=5.0)
SOON_S = 15.0  # some milliseconds alone; what is waited for in vain here takes 30 s


def members(*hosts):
    return [Member(number, host, host, 100 + number) for number, host in enumerate(hosts)]


def report(member, epoch=0, leaving=False, suspects=()):
    return Report(epoch, member, f"unix:store-{member}", frozenset(suspects), leaving)


def part(me, hosts, dead=(), leaving=False, suspects=()):
    job = members(*hosts)
    last = Epoch(0, tuple(range(len(job))))
    return Deciding(job, last, report(me, 0, leaving, suspects), {0: last}, set(dead), TIMING, 0.0)


def said(deciding, kind):
    return {number: message for number, message in deciding.outgoing if message.kind == kind}


def report_all(deciding, numbers, now=0.01, leaving=()):
    for number in numbers:
        deciding.on_connected(number, now)
        deciding.receive(number, Message(Kind.REPORT, 0, report=report(number, 0, number in leaving)), now)
    deciding.tick(now)


def answer_all(deciding, numbers, now=0.02):
    """These promise and vote."""
    ballot = next(iter(said(deciding, Kind.PREPARE).values())).ballot
    for kind in (Kind.PROMISE, Kind.ACCEPTED):
        for number in numbers:
            deciding.receive(number, Message(kind, 0, ballot=ballot), now)


# ---- The state machine -----------------------------------------------------------------------------------------------


def test_the_lowest_member_proposes_those_that_have_reported():
    deciding = part(1, "aaaa", dead=[0])
    report_all(deciding, [2, 3])
    assert said(deciding, Kind.PREPARE).keys() == {2, 3}
    answer_all(deciding, [2])
    assert deciding.decided is None, "the living are a quorum, and 3 has not answered"
    answer_all(deciding, [2, 3])
    assert deciding.decided == Epoch(1, (1, 2, 3), "unix:store-1")


def test_another_member_does_not_propose_before_its_turn():
    deciding = part(2, "aaaa", dead=[0])
    report_all(deciding, [1, 3])
    assert not said(deciding, Kind.PREPARE)
    deciding.tick(0.01 + TIMING.beat_s)
    assert said(deciding, Kind.PREPARE).keys() == {1, 3}


def test_a_member_that_computes_is_waited_for():
    deciding = part(0, "abc")
    report_all(deciding, [1])
    deciding.on_connected(2, 0.01)
    deciding.tick(50.0)
    assert not said(deciding, Kind.PREPARE)
    assert deciding.unheard(50.0) == ([2], [1])


def test_a_silent_member_is_left_out_after_its_time():
    deciding = part(0, "abc")
    report_all(deciding, [1])
    for now in (1.0, 2.0, 3.0, 4.0, 4.9):
        deciding.receive(1, Message(Kind.REPORT, 0, report=report(1)), now)
        deciding.tick(now)
    assert not said(deciding, Kind.PREPARE)
    deciding.tick(5.1)
    answer_all(deciding, [1], 5.1)
    assert deciding.decided == Epoch(1, (0, 1), "unix:store-0")


def test_a_member_that_the_core_has_lost_is_waited_for_less_long():
    deciding = part(0, "abcc", suspects=[2])
    report_all(deciding, [1], 0.01)
    deciding.receive(1, Message(Kind.REPORT, 0, report=report(1)), 1.4)
    deciding.tick(1.4)
    assert not said(deciding, Kind.PREPARE)
    deciding.tick(1.6)
    assert said(deciding, Kind.PREPARE), "2 was lost, and 3 is on its host"


@pytest.mark.parametrize(
    ("size", "answers", "is_quorum"),
    [(2, {0}, True), (2, {1}, False), (4, {0, 3}, True), (4, {1, 2}, False), (5, {2, 3, 4}, True), (5, {0, 1}, False)],
)
def test_half_of_the_members_is_a_quorum_with_the_lowest_one_only(size, answers, is_quorum):
    deciding = part(min(answers), "abcdefgh"[:size])
    others = answers - {min(answers)}
    report_all(deciding, others, 4.99)
    deciding.tick(6.0)
    assert bool(said(deciding, Kind.PREPARE)) == is_quorum


def test_silence_is_no_death():
    deciding = part(1, "aa")
    deciding.tick(10.0)
    assert not said(deciding, Kind.PREPARE)
    deciding.on_death(0, 10.0)
    deciding.tick(10.0)
    assert deciding.decided == Epoch(1, (1,), "unix:store-1")


def test_a_vote_outlives_its_proposer():
    deciding = part(1, "aaaa")
    value = Epoch(1, (0, 1, 2, 3), "unix:store-0")
    report_all(deciding, [0, 2, 3])
    deciding.on_death(0, 0.02)
    deciding.tick(0.02)
    ballot = next(iter(said(deciding, Kind.PREPARE).values())).ballot
    deciding.receive(2, Message(Kind.PROMISE, 0, ballot=ballot, voted=(1, 0), value=value), 0.03)
    deciding.receive(3, Message(Kind.PROMISE, 0, ballot=ballot), 0.03)
    assert {message.value for message in said(deciding, Kind.ACCEPT).values()} == {value}


def test_a_promise_holds_against_lower_ballots():
    deciding = part(2, "aaa")
    deciding.receive(1, Message(Kind.PREPARE, 0, ballot=(3, 1)), 0.01)
    deciding.receive(0, Message(Kind.PREPARE, 0, ballot=(2, 0)), 0.02)
    deciding.receive(0, Message(Kind.ACCEPT, 0, ballot=(2, 0), value=Epoch(1, (0, 2))), 0.03)
    assert said(deciding, Kind.PROMISE).keys() == {1}
    assert said(deciding, Kind.REFUSED)[0].ballot == (3, 1)
    assert not said(deciding, Kind.ACCEPTED)


def test_the_dead_are_not_heard_once_another_member_knows_of_their_death():
    deciding = part(2, "aabb")
    deciding.receive(3, Message(Kind.PREPARE, 0, frozenset({0, 1}), (5, 3)), 0.01)
    deciding.receive(0, Message(Kind.DECIDED, 0, value=Epoch(1, (0, 1))), 0.02)
    deciding.receive(1, Message(Kind.ACCEPT, 0, ballot=(9, 1), value=Epoch(1, (0, 1))), 0.03)
    assert deciding.decided is None
    assert not said(deciding, Kind.ACCEPTED)


def test_a_majority_of_the_living_is_no_quorum():
    deciding = part(2, "aabbb", dead=[0, 1])
    report_all(deciding, [3])
    deciding.receive(3, Message(Kind.REPORT, 0, report=report(3)), 5.0)
    deciding.tick(6.0)
    assert not said(deciding, Kind.PREPARE), "4 is silent, and may have gone on with 0 and 1 before they died"


def test_members_that_leave_are_not_in_the_next_epoch():
    deciding = part(0, "aaa", leaving=True)
    report_all(deciding, [1, 2])
    answer_all(deciding, [1, 2])
    assert deciding.decided == Epoch(1, (1, 2), "unix:store-1")


def test_a_message_of_an_earlier_epoch_is_answered_with_the_decision():
    history = {0: Epoch(0, (0, 1, 2)), 1: Epoch(1, (0, 1), "unix:store-0")}
    deciding = Deciding(members(*"abc"), history[1], report(0, 1), history, set(), TIMING, 0.0)
    deciding.receive(2, Message(Kind.REPORT, 0, report=report(2)), 0.1)
    assert said(deciding, Kind.DECIDED)[2].value == history[1]


def job_of(me, hosts, min_np=1):
    return Majority(members(*hosts), me, min_np, TIMING)


def test_an_epoch_with_a_dead_member_is_followed_by_another_one_at_once():
    majority = job_of(2, "aaa")
    deciding = majority.begin(report(2), 0.0)
    report_all(deciding, [0, 1])
    deciding.receive(1, Message(Kind.DECIDED, 0, value=Epoch(1, (0, 1, 2), "unix:store-0")), 0.02)
    deciding.on_death(0, 0.03)
    assert majority.result(0.03) is None
    assert majority.deciding is not deciding
    assert majority.deciding.last.number == 1


@pytest.mark.parametrize(
    ("value", "min_np", "sentence"),
    [
        (Epoch(1, (0, 1)), 1, r"rank 2 in order of start \(host a, pid 102\) is not in epoch 1: .* 2 of 3 ranks go on"),
        (Epoch(1, (1, 2)), 3, "2 of 3 ranks are left after epoch 0, and FARANDOLE_MIN_NP asks for 3"),
    ],
)
def test_a_decision_may_end_the_job(value, min_np, sentence):
    majority = job_of(2, "aaa", min_np)
    majority.begin(report(2), 0.0).receive(1, Message(Kind.DECIDED, 0, value=value), 0.01)
    with pytest.raises(MembershipError, match=sentence):
        majority.result(2.0)


def test_the_end_of_the_time_names_the_members_that_did_not_come():
    majority = job_of(0, "abc")
    deciding = majority.begin(report(0), 0.0)
    deciding.on_connected(1, 0.1)
    deciding.on_connected(2, 0.1)
    assert majority.result(59.0) is None
    with pytest.raises(MembershipError, match=r"rank 1 .* and rank 2 .* did not come to epoch 1 within 60 s"):
        majority.result(60.0)


def test_the_end_of_the_time_names_the_members_that_were_not_reached():
    majority = job_of(1, "abc")
    majority.begin(report(1), 0.0).on_connected(2, 0.1)
    with pytest.raises(MembershipError, match=r"could not reach rank 0 .* and 1 of 3 ranks are no majority"):
        majority.result(60.0)


# ---- Messages as bytes -----------------------------------------------------------------------------------------------


def test_messages_survive_the_wire():
    value = Epoch(7, (1, 3), "tcp:10.0.0.1:77")
    for message in (
        Message(Kind.REPORT, 6, frozenset({2}), report=Report(6, 1, "unix:x", frozenset({2, 4}), True)),
        Message(Kind.PROMISE, 6, ballot=(3, 1), voted=(2, 0), value=value),
        Message(Kind.REFUSED, 6, ballot=(4, 2)),
    ):
        assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"kind":"report","instance":"1","dead":[]}',
        b'{"kind":"what","instance":1,"dead":[]}',
        b'{"kind":"prepare","instance":1,"dead":[],"ballot":[1]}',
        b'{"kind":"decided","instance":1,"dead":[],"value":[1]}',
        b'{"kind":"decided","instance":1,"dead":[],"value":[1,[true],""]}',
        b'{"kind":"report","instance":1,"dead":3}',
        b"[" * 100_000,
    ],
)
def test_nonsense_is_no_message(data):
    with pytest.raises(ValueError):
        decode(data)


# ---- Real processes --------------------------------------------------------------------------------------------------


def test_the_survivors_of_kills_decide_soon():
    times = []
    for _ in range(7):
        with Members(["a"] * 4) as job:
            job.kill(1)
            taken, answers = job.timed([0, 2, 3])
            times.append(taken)
            assert answers == [Epoch(1, (0, 2, 3), "unix:store-0")] * 3
            job.kill(0)
            assert job.decide([2, 3]) == [Epoch(2, (2, 3), "unix:store-2")] * 2
            job.kill(3)
            assert job.decide([2]) == [Epoch(3, (2,), "unix:store-2")]
    print(f"from the report to the decision: median {1e3 * statistics.median(times):.1f} ms of {len(times)}")
    assert statistics.median(times) < SOON_S


def test_members_of_other_hosts_decide_by_tcp():
    with Members(["a", "a", "b", "c"]) as job:
        job.kill(3)
        assert job.decide([0, 1, 2]) == [Epoch(1, (0, 1, 2), "unix:store-0")] * 3
        job.kill(0)
        assert job.decide([1, 2]) == [Epoch(2, (1, 2), "unix:store-1")] * 2


def test_a_minority_ends_with_a_sentence():
    with Members(["a", "b"], timeout_s=1.0) as job:
        job.kill(0)
        (sentence,) = job.decide([1])
        assert "could not reach rank 0 in order of start" in sentence


def test_a_death_while_others_wait_is_seen_at_once():
    with Members(["a"] * 3) as job:
        job.ask(0)
        job.ask(1)
        time.sleep(0.2)
        began = time.monotonic()
        job.kill(2)
        assert job.answers([0, 1]) == [Epoch(1, (0, 1), "unix:store-0")] * 2
        assert time.monotonic() - began < SOON_S


def test_a_member_that_is_stopped_is_waited_for():
    with Members(["a"] * 3) as job:
        pid = job.processes[0].pid
        os.kill(pid, signal.SIGSTOP)
        job.kill(2)
        job.ask(1)
        assert not job.pipes[1].poll(0.5)
        os.kill(pid, signal.SIGCONT)
        job.ask(0)
        assert job.answers([0, 1]) == [Epoch(1, (0, 1), "unix:store-0")] * 2


def test_a_member_that_never_comes_is_named():
    with Members(["a"] * 3, timeout_s=1.0) as job:
        job.kill(2)
        first, second = job.decide([0, 1][:1])[0], job.processes[1]
        assert f"(host a, pid {second.pid}) did not come to epoch 1 within 1 s" in first


def test_a_member_that_leaves_hears_who_goes_on():
    with Members(["a"] * 3) as job:
        job.ask(0, "leave")
        job.ask(1)
        job.ask(2)
        assert job.answers([0, 1, 2]) == [Epoch(1, (1, 2), "unix:store-1")] * 3


def _fork_a_child():
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    return child


def test_a_forked_child_does_not_keep_the_name_of_its_parent():
    with Members(["a"] * 2) as job:
        job.ask(1, _fork_a_child)
        (child,) = job.answers([1])
        try:
            job.kill(1)
            assert job.decide([0], 10.0) == [Epoch(1, (0,), "unix:store-0")]
        finally:
            os.kill(child, signal.SIGKILL)


def test_ctrl_c_interrupts():
    job = members("a", "a")
    other = [f'{{"min_np": 1, "unix": "unix:farandole-test-{os.getpid()}"}}'.encode()]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0farandole-test-{os.getpid()}")
        listener.listen()
        authority = MajorityAuthority(job, 0, KEY, 1, "", 30.0, exchange=lambda mine: [mine, *other])
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            authority.next_epoch(report(0))
        assert time.monotonic() - began < SOON_S
        authority.close()


def test_min_np_is_alike_on_all_ranks():
    with pytest.raises(ValueError, match="FARANDOLE_MIN_NP is 2 on rank 0 and 1 on rank 1"):
        other = b'{"min_np": 1, "unix": "unix:x"}'
        MajorityAuthority(members("a", "a"), 0, KEY, 2, "", 30.0, exchange=lambda mine: [mine, other])


# ---- Strangers -------------------------------------------------------------------------------------------------------


def _visit(endpoint):
    kind, _, place = endpoint.partition(":")
    host, _, port = place.rpartition(":")
    made = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
    made.settimeout(2.0)
    made.connect("\0" + place if kind == "unix" else (host, int(port)))
    return made


MANNERS = {
    "says nothing": b"",
    "garbage": bytes(range(256)) * 100,
    "wrong key": b"\1" * 48,
    "a frame at once": struct.pack("!I", 1 << 31) + b"0",
    "one byte": b"x",
}


@pytest.mark.parametrize("hosts", ["aaaa", "abcd"])
def test_strangers_are_refused_and_change_nothing(hosts):
    with Members(list(hosts)) as job, contextlib.ExitStack() as stack:
        visitors = []
        for each in job.endpoints[:3]:
            for endpoint in {each["unix"], each.get("tcp", each["unix"])}:
                for words in [*MANNERS.values()] * 30:
                    visitors.append(stack.enter_context(_visit(endpoint)))
                    visitors[-1].sendall(words)
        job.kill(3)
        assert job.decide([0, 1, 2]) == [Epoch(1, (0, 1, 2), "unix:store-0")] * 3
        for each in visitors:
            with contextlib.suppress(ConnectionError):
                heard = each.recv(4096)
                assert len(heard) <= 34, "no more than the hello and a nonce"
