"""The messages of a launcher and its agents: frames, the start of a job, addresses, ssh's words."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from farandole import FarandoleError
from farandole._functions import call_payload, outcome
from farandole._start import frames
from farandole.launch import placement
from farandole.launch.agent.address_probe import Prober
from farandole.launch.events import JobEnded
from farandole.launch.head import address_search, ssh
from farandole.launch.head.address_search import AssemblyError
from farandole.launch.head.assembly import Assembly, HostPlan
from farandole.launch.job import JobResult
from farandole.launch.options import HostOptions
from farandole.launch.rank_exit import from_message

KEY = bytes(range(32))

# ---- frames


def read(data: bytes, piece: int) -> list[frames.Message | frames.Output]:
    reader = frames.FrameReader()
    pieces = [data[at : at + piece] for at in range(0, len(data), piece)]
    return [frame for each in pieces for frame in reader.feed(each)]


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_frames_arrive_whole_however_they_are_cut_and_whatever_a_shell_prints_before(piece: int) -> None:
    sent = [frames.message("tell", signum=15), frames.output(3, frames.STDERR, b"\0\n\xff" * 500)]
    sent += [frames.output(0, frames.CALL, b"\0" * 5000), frames.message("done")]
    data = b"Welcome to h1!\nLast login: never\n" + frames.GREETING + b"".join(sent)
    assert read(data, piece) == [
        {"kind": "tell", "signum": 15},
        frames.Output(3, frames.STDERR, b"\0\n\xff" * 500),
        frames.Output(0, frames.CALL, b"\0" * 5000),
        {"kind": "done"},
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 50,
        b"\0\0\0\2\1{}",
        b"\0\0\0\5\1[1,2]",
        b"\0\0\0\3\1x{}",
        b"\0\0\0\1\2x",
        b"\0\0\0\5\2\0\0\0\1\4",
        b"\0\0\0\1\7x",
    ],
)
def test_what_is_no_frame_is_an_error(data: bytes) -> None:
    with pytest.raises(frames.FrameError):
        list(frames.FrameReader(greeted=True).feed(data))


def test_a_host_that_prints_without_end_is_an_error() -> None:
    reader = frames.FrameReader()
    with pytest.raises(frames.FrameError, match="without end"):
        for _ in range(1000):
            list(reader.feed(b"y\n" * 1000))


# ---- outcomes of functions


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_pieces_of_outcomes_arrive_whole_however_they_are_cut(size: int) -> None:
    sent = [(0, b"a" * 300), (70_000, b""), (0, b"\0\xff")]
    data = b"".join(frames.output(rank, frames.OUTCOME, piece) for rank, piece in sent)
    reader = frames.FrameReader(greeted=True)
    found: list[Any] = [each for at in range(0, len(data), size) for each in reader.feed(data[at : at + size])]
    assert [(each.rank, each.data) for each in found] == sent


def test_an_outcome_that_is_not_all_there_is_none() -> None:
    whole, error = outcome.of_call(call_payload.for_elsewhere(lambda: [7], (), {}, "test"), 0)
    assert error is None and outcome.result_in(whole, 0, 1) == [7]
    left = [JobResult(0, JobEnded(0), {0: bytearray(whole[:length])}) for length in range(len(whole))]
    for each in left:
        with pytest.raises(FarandoleError, match="rank 0 ended with exit code 0 before its function returned"):
            outcome.results(each, 1)


# ---- addresses


def test_loopback_and_cables_lead_nowhere_and_ipv4_comes_first() -> None:
    found = [
        address_search.Address("lo", "127.0.0.1"),
        address_search.Address("eth0", "fd00::7"),
        address_search.Address("eth0", "fe80::1"),
        address_search.Address("eth1", "169.254.0.3"),
        address_search.Address("eth0", "10.0.0.7"),
        address_search.Address("docker0", "172.17.0.1"),
    ]
    assert address_search.candidates(found) == ["10.0.0.7", "172.17.0.1", "fd00::7"]
    assert address_search.candidates(found, ["docker0"]) == ["172.17.0.1"]


def chosen(names: str, offered: Any, reached: Any) -> list[str]:
    search = address_search.Search("", dict(enumerate(names)), dict(enumerate(offered)), reached=reached)
    return [*search.choose().values()]


def test_an_address_that_every_other_host_reaches_is_chosen() -> None:
    offered = [["172.17.0.1", "10.0.0.1"], ["172.17.0.1", "10.0.0.2"], ["10.0.0.3"]]
    reached = {number: [(host, f"10.0.0.{host + 1}") for host in range(3) if host != number] for number in range(3)}
    reached[2].append((0, "172.17.0.1"))  # of one host only
    assert chosen("abc", offered, reached) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


@pytest.mark.parametrize(
    ("offered", "reached", "words"),
    [
        ([["10.0.0.1"], ["10.0.0.2"]], {0: [(1, "10.0.0.2")], 1: []}, ["b cannot connect to a (10.0.0.1)", "firewall"]),
        ([["10.0.0.1"], []], {0: [], 1: [(0, "10.0.0.1")]}, ["b has no address", "--network-interfaces"]),
    ],
)
def test_hosts_that_do_not_reach_each_other_are_named(offered: Any, reached: Any, words: list[str]) -> None:
    with pytest.raises(AssemblyError) as raised:
        chosen("ab", offered, reached)
    assert [word for word in words if word not in str(raised.value)] == []


# ---- ssh


def test_the_host_can_be_no_option_and_the_interpreter_no_word_of_a_shell() -> None:
    options = HostOptions(2222, Path("/key"), "/opt/my env/python;x")
    words = ssh.agent_command("me@h1", False, options, ["ssh", "-F", "a b"])
    assert words[:3] == ["ssh", "-F", "a b"]
    assert words[-3:] == ["--", "me@h1", "exec '/opt/my env/python;x' -m farandole.launch.agent.host_agent"]
    assert words[words.index("-p") + 1] == "2222" and words[words.index("-i") + 1] == "/key"
    assert "BatchMode=yes" in words and not any("StrictHostKeyChecking" in word for word in words)


@pytest.mark.parametrize(("silence_s", "count"), [(4.0, 2), (1.0, 1), (20.0, 10), (21.0, 11)])
def test_ssh_bears_as_much_silence_as_the_ranks(silence_s: float, count: int) -> None:
    words = ssh.agent_command("h1", False, HostOptions(silence_s=silence_s), ["ssh"])
    assert {"ServerAliveInterval=2", f"ServerAliveCountMax={count}"} <= {*words}


@pytest.mark.parametrize(
    ("stderr", "code", "words"),
    [
        ("ssh: Could not resolve hostname h1: Name or service not known", 255, ["h1 is no name"]),
        ("ssh: connect to host h1 port 22: Connection refused", 255, ["h1", "no ssh server"]),
        ("ssh: connect to host h1 port 22: Connection timed out", 255, ["h1 cannot be reached"]),
        ("me@h1: Permission denied (publickey).", 255, ["h1 refuses the login", "ssh-copy-id h1"]),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            255,
            ["ssh-keygen -R h1"],
        ),
        ("No ED25519 host key is known for h1\nHost key verification failed.", 255, ["not known here", "ssh h1 once"]),
        ("bash: line 1: /opt/python: No such file or directory", 127, ["h1 cannot run /opt/python", "--python"]),
        (
            "/opt/python: Error while finding module specification for 'farandole.launch'",
            1,
            ["no farandole 1.2", "pip"],
        ),
        ("sh: 1: exec: /etc/passwd: Permission denied", 126, ["h1 cannot run /opt/python"]),
        ("kex_exchange_identification: \x1b[31mread\nwhat", 255, ["h1: ssh ended with exit code 255: what"]),
    ],
)
def test_what_ssh_says_becomes_one_sentence_with_a_remedy(stderr: str, code: int, words: list[str]) -> None:
    told = "; ".join(ssh.cause("me@h1", code, stderr, "/opt/python", "1.2"))
    assert [word for word in words if word not in told] == []
    assert "\n" not in told and "\x1b" not in told


# ---- the start of a job


class Talk:
    """An assembly of three hosts, and what it has sent to each."""

    def __init__(self) -> None:
        placements = placement.place(
            4, [placement.HostSlots("a", 2), placement.HostSlots("b", 1), placement.HostSlots("c", 1)]
        )
        plans = [HostPlan(name, [each for each in placements if each.host == name]) for name in "abc"]
        self.assembly = Assembly(plans, {"command": ["x"]}, [{"OF": name} for name in "abc"], "1.0", "00")

    def say(self, host: int, kind: str, **content: Any) -> list[tuple[int, str]]:
        self.sent = self.assembly.on_message(host, {"kind": kind, **content})
        return [(to, kind) for to, kind, _ in self.sent]

    def greet(self, host: int, **other: Any) -> list[tuple[int, str]]:
        content = {"version": "1.0", "python": "/p", "identity": str(host), "addresses": [["eth0", f"10.0.0.{host}"]]}
        return self.say(host, "greeting", **{**content, **other})

    def steps(self) -> Iterator[list[tuple[int, str]]]:
        for host in (2, 0, 1):
            yield self.greet(host)
        for host in (0, 2, 1):
            yield self.say(host, "listening", ports={f"10.0.0.{host}": 40 + host})
        for host in (1, 2, 0):
            yield self.say(host, "reached", reached=[[to, f"10.0.0.{to}"] for to in range(3) if to != host])
        yield self.say(0, "reserved", store="tcp:10.0.0.0:7", master_port=8)


def test_each_step_waits_for_all_hosts() -> None:
    talk = Talk()
    steps = [each for each in talk.steps() if each]
    assert steps == [
        [(0, "listen"), (1, "listen"), (2, "listen")],
        [(0, "probe"), (1, "probe"), (2, "probe")],
        [(0, "reserve")],
        [(0, "start"), (1, "start"), (2, "start")],
    ]
    _, _, content = talk.sent[1]
    assert [each["rank"] for each in content["placements"]] == [2] and content["environment"] == {"OF": "b"}
    assert (content["store"], content["address"], content["master_address"]) == (
        "tcp:10.0.0.0:7",
        "10.0.0.1",
        "10.0.0.0",
    )
    for host in range(3):
        assert not talk.assembly.is_complete
        assert talk.assembly.waiting_for() == list("abc")[host:]
        assert talk.say(host, "started", pids={}) == []
    assert talk.assembly.is_complete


def test_versions_that_differ_are_refused_with_the_remedy() -> None:
    with pytest.raises(AssemblyError, match=r"b has farandole 0\.9, this host 1\.0.*/p -m pip install farandole==1\.0"):
        Talk().greet(1, version="0.9")


def test_one_machine_under_two_names_is_refused() -> None:
    talk = Talk()
    talk.greet(0, identity="same")
    talk.greet(1)
    with pytest.raises(AssemblyError, match="a and c are one machine; name it once"):
        talk.greet(2, identity="same")


def test_what_an_agent_refuses_is_told_with_its_host() -> None:
    with pytest.raises(AssemblyError, match="b: it has no folder /x"):
        Talk().say(1, "refused", why="it has no folder /x")


# ---- deaths

PLACE = placement.Placement(rank=3, size=4, local_rank=1, local_size=2, cross_rank=1, cross_size=2, host="h1")
DEATH = {
    "rank": 3,
    "pid": 7,
    "code": 1,
    "ran_s": 9.0,
    "asked": False,
    "joins": 1,
    "report": [True, 0.5, None, False, False],
    "lost": "",
    "recorded": "",
}


def test_a_death_is_heard_by_the_clock_of_this_host() -> None:
    death = from_message(DEATH, PLACE, 100.0, "its agent there", None)
    assert (death.code, death.seen_at, death.failed_at, death.joined, death.lost) == (1, 100.0, 99.5, True, "")
    assert from_message({**DEATH, "report": None, "joins": 0}, PLACE, 100.0, "", None).joined is False


def test_a_rank_that_obeyed_the_end_of_its_teller_is_lost_by_that_end() -> None:
    obeyed = from_message({**DEATH, "asked": True}, PLACE, 100.0, "its agent there", ("SIGTERM", 143))
    assert (obeyed.code, obeyed.asked, obeyed.failed_at) == (143, False, 100.0)
    assert obeyed.lost == "somebody ended its agent there by SIGTERM"
    by_itself = from_message(DEATH, PLACE, 100.0, "its agent there", ("SIGTERM", 143))
    assert (by_itself.code, by_itself.lost) == (1, "")


@pytest.mark.parametrize("wrong", [{"code": "x"}, {"report": [1]}, {"ran_s": None}])
def test_a_message_that_is_no_death_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        from_message({**DEATH, **wrong}, PLACE, 100.0, "", None)


# ---- the probe of addresses


def test_a_probe_reaches_the_host_that_it_means_and_no_other() -> None:
    threads = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        listener, caller, stranger = Prober(1, KEY), Prober(0, KEY), Prober(0, KEY[::-1])
        port = listener.listen(["127.0.0.1", "192.0.2.1"])["127.0.0.1"]  # the other one is no address of this host
        closed = socket.create_server(("127.0.0.1", 0))
        nobody = closed.getsockname()[1]
        closed.close()
        targets = [(1, "127.0.0.1", port), (2, "127.0.0.1", port), (3, "127.0.0.1", nobody)]
        began = time.monotonic()
        caller.start([*targets, (4, "127.0.0.1", silent.getsockname()[1])])
        stranger.start(targets[:1])
        found: list[Any] = []
        for each in (caller, stranger):
            while (reached := each.take_reached()) is None:
                assert time.monotonic() < began + 20
                time.sleep(0.01)
            found.append(reached)
            assert not each.is_trying and each.take_reached() is None
        assert found == [[(1, "127.0.0.1")], []]
        assert time.monotonic() - began < 10, "one that says nothing is given up"
        for each in (listener, caller, stranger):
            each.close()
        assert threading.active_count() == threads, "ranks can be forked"


def test_a_caller_that_says_nothing_does_not_hold_up_the_end_of_a_probe() -> None:
    listener = Prober(1, KEY)
    port = listener.listen(["127.0.0.1"])["127.0.0.1"]
    with socket.create_connection(("127.0.0.1", port)) as silent:
        assert silent.recv(1)
        began = time.monotonic()
        listener.close()
        assert time.monotonic() - began < 1.5
