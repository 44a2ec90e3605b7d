"""The launcher follows a cluster: its orders to agents that come and go. No process and no network."""

from __future__ import annotations

import selectors
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from farandole.launch.discovery.host_states import HostStates
from farandole.launch.discovery.source import Source
from farandole.launch.ending import Ending
from farandole.launch.head.assembly import Assembly, HostPlan
from farandole.launch.head.follow import Follower
from farandole.launch.hosts import HostList, parse_hosts
from farandole.launch.membership import Lease
from farandole.launch.placement import place
from farandole.launch.rank_slots import Backoff, RankSlots

ABOUT = {"kind": "greeting", "version": "1", "python": "python"}


@dataclass(eq=False)
class FakeLink:
    """An agent that does as it is told, and remembers what."""

    name: str
    said: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    greeted: bool = True
    error: str = ""
    stderr: bytes = b""
    killed: bool = False

    def say(self, kind: str, **content: Any) -> None:
        self.said.append((kind, content))

    def kill(self) -> None:
        self.killed = True

    def send_call(self, _call: int) -> bool:
        return False

    def heard(self, kind: str) -> list[dict[str, Any]]:
        return [content for each, content in self.said if each == kind]


class Cluster:
    """A job with a rank on each host of `listed`, which the source names, too, until that changes."""

    def __init__(self, listed: str, min_np: int = 1, max_np: int = 8) -> None:
        self.listed = listed
        hosts = parse_hosts(listed).slots
        placements = place(sum(each.count for each in hosts), hosts)
        plans = [HostPlan(each.host, [p for p in placements if p.host == each.host], started=True) for each in hosts]
        for number, plan in enumerate(plans):
            plan.greeting = {**ABOUT, "identity": plan.name, "addresses": [["eth0", f"10.0.0.{number}"]]}
        self.assembly = Assembly(plans, {}, [{}] * len(plans), "1", "ab")
        self.assembly.addresses[:] = [f"10.0.0.{number}" for number in range(len(plans))]
        self.links: list[Any] = [FakeLink(plan.name) for plan in plans]
        self.lease = Lease(len(placements), min_np, 60.0)
        for each in placements:
            self.lease.hear(each.rank, {"kind": "begin"}, 0.0)
        self.slots = RankSlots(placements, max_np, Backoff(1.0, 8.0))
        self.ending, self.call = Ending(5.0), -1
        self.alive = {each.rank: each.host for each in placements}
        self.told: list[str] = []
        self.relay: Any = SimpleNamespace(say=self.told.append)
        source = Source("the list", (), self._hosts, every_s=1.0)
        self.follower = Follower(self._open, lambda _: {}, list, source, {}, HostStates(Backoff(1.0, 8.0)), "1", {})
        self.follower.attach(self, selectors.DefaultSelector())  # type: ignore[arg-type]  # with links of its own
        self.now = 0.0

    def _hosts(self, _text: str) -> HostList:
        return HostList(tuple(parse_hosts(self.listed).slots), "the list")

    def _open(self, name: str) -> Any:
        return FakeLink(name, greeted=False)

    @property
    def running(self) -> int:
        return len(self.alive)

    def ranks_of(self, link: FakeLink) -> list[int]:
        return [rank for rank, host in self.alive.items() if host == link.name]

    def why_no_agent(self, link: FakeLink, _stderr: str) -> str:
        return f"{link.name} cannot be reached"

    def link(self, name: str) -> FakeLink:
        (found,) = [each for each in self.links if each.name == name]
        return found

    def pass_time(self, seconds: float) -> None:
        """The loop turns; newcomers are started where places are free."""
        until = self.now + seconds
        while self.now < until:
            self.now += 0.5
            self.follower.act(self.now)
            while (placement := self.slots.due(self.now, self.running)) is not None:
                self.alive[placement.rank] = placement.host

    def answer(self, name: str, **content: Any) -> None:
        self.follower.on_message(self.link(name), content)  # type: ignore[arg-type]

    def end(self, name: str) -> bool:
        link = self.link(name)
        self.links.remove(link)
        return self.follower.link_ended(link, self.now)  # type: ignore[arg-type]

    def probe(self, name: str, address: str = "10.0.0.99") -> None:
        """All agents answer until the newcomer is asked to start."""
        self.answer(name, **ABOUT, identity=name, addresses=[["eth0", address]])
        self.pass_time(0.5)
        asked = [link for link in self.links if link.heard("listen")]
        for link in asked:
            order = link.heard("listen")[-1]
            self.answer(link.name, kind="listening", ports=dict.fromkeys(order["addresses"], 7))
        for link in asked:
            targets = link.heard("probe")[-1]["targets"]
            self.answer(link.name, kind="reached", reached=[[host, at] for host, at, _ in targets])


def test_a_new_host_is_probed_started_without_ranks_and_filled() -> None:
    cluster = Cluster("h0:1,h1:1")
    cluster.pass_time(1.0)
    cluster.listed = "h0:1,h1:1,h2:2"
    cluster.pass_time(2.0)
    cluster.probe("h2")
    (order,) = cluster.link("h2").heard("start")
    assert order["placements"] == [] and order["address"] == "10.0.0.99"
    assert cluster.link("h0").said[-1][0] == "quiet" and cluster.running == 2
    cluster.answer("h2", kind="started", pids={})
    cluster.pass_time(0.5)
    assert list(cluster.alive.values()).count("h2") == 2
    assert cluster.told == ["farandole: h2 (10.0.0.99) has joined the job's hosts."]


def test_a_new_host_is_probed_and_asked_to_start_only_once() -> None:
    cluster = Cluster("h0:1")
    cluster.listed = "h0:1,h2:1"
    cluster.pass_time(1.0)
    cluster.probe("h2")
    cluster.pass_time(3.0)  # its agent takes that long
    assert len(cluster.link("h0").heard("listen")) == len(cluster.link("h2").heard("start")) == 1
    cluster.answer("h2", kind="started", pids={})
    assert len(cluster.told) == 1 and "has joined" in cluster.told[0]


def test_a_host_that_cannot_be_reached_is_told_of_once_and_tried_again() -> None:
    cluster = Cluster("h0:1")
    cluster.listed = "h0:1,h2:2"
    cluster.pass_time(1.0)
    tries = 0
    for _ in range(100):
        if any(link.name == "h2" for link in cluster.links):
            tries += 1
            assert cluster.end("h2")
        cluster.pass_time(0.5)
    assert 6 <= tries <= 10 and len(cluster.told) == 1 and "h2 cannot be reached; it is tried again" in cluster.told[0]


def test_one_that_does_not_answer_does_not_hold_up_the_next() -> None:
    cluster = Cluster("h0:1")
    cluster.listed = "h0:1,h2:1,h3:1"
    cluster.pass_time(1.0)
    cluster.answer("h2", **ABOUT, identity="h2", addresses=[["eth0", "10.0.0.2"]])
    cluster.pass_time(40.0)
    assert cluster.link("h2").killed and cluster.end("h2")
    assert "h2 was not ready within 38 s" in "".join(cluster.told)
    assert cluster.link("h3").killed and cluster.end("h3")  # it has not even greeted
    cluster.listed = "h0:1,h3:1"
    cluster.pass_time(3.0)
    cluster.probe("h3")
    assert cluster.link("h3").heard("start")


def test_ranks_of_a_host_that_is_not_listed_leave_and_then_its_agent() -> None:
    cluster = Cluster("h0:1,h1:2")
    cluster.pass_time(1.0)
    cluster.listed = "h0:1"
    cluster.pass_time(3.0)
    assert cluster.link("h1").heard("leave") == [{"ranks": [1, 2]}] and not cluster.link("h1").heard("dismiss")
    del cluster.alive[1]
    cluster.pass_time(3.0)
    assert not cluster.link("h1").heard("dismiss")
    del cluster.alive[2]
    cluster.pass_time(3.0)
    assert len(cluster.link("h1").heard("dismiss")) == 1
    assert not cluster.end("h1")
    cluster.pass_time(9.0)
    assert [link.name for link in cluster.links] == ["h0"] and cluster.running == 1
    assert cluster.told == ["farandole: h1 is no longer among the hosts of the list, so its ranks leave."]


def test_min_np_keeps_ranks_until_others_have_joined() -> None:
    cluster = Cluster("h0:1,h1:2", min_np=3)
    cluster.pass_time(1.0)
    cluster.listed = "h0:1"
    cluster.pass_time(9.0)
    assert not cluster.link("h1").heard("leave")
    (told,) = cluster.told
    assert "no longer has slots for 2 ranks of h1, but --min-np is 3; they stay" in told
    cluster.listed = "h0:3"
    cluster.pass_time(2.0)
    for rank in (3, 4):
        said = {"store": "", "suspects": [], "leaving": False}
        cluster.lease.hear(rank, {"kind": "hello", "about": {"host": "h0", "host_name": "h0", "pid": 1}}, 0.0)
        cluster.lease.hear(rank, {"kind": "join", "epoch": -1, **said}, 0.0)
    for rank in (0, 1, 2):
        cluster.lease.hear(rank, {"kind": "report", "epoch": 0, **said}, 0.0)
    cluster.pass_time(1.0)
    assert cluster.link("h1").heard("leave") == [{"ranks": [1, 2]}]


def test_fewer_slots_cost_the_last_ranks_their_places() -> None:
    cluster = Cluster("h0:4")
    cluster.pass_time(1.0)
    cluster.listed = "h0:2"
    cluster.pass_time(3.0)
    assert cluster.link("h0").heard("leave") == [{"ranks": [2, 3]}]
    for rank in (2, 3):
        del cluster.alive[rank]
    cluster.pass_time(3.0)
    assert cluster.running == 2 and not cluster.link("h0").heard("dismiss")


def test_ranks_outside_of_elastic_run_are_not_told_to_leave() -> None:
    cluster = Cluster("h0:2,h1:1")
    cluster.pass_time(1.0)
    cluster.lease.hear(0, {"kind": "pause"}, 0.0)
    cluster.listed = "h0:1"
    cluster.pass_time(5.0)
    assert not cluster.link("h0").heard("leave") + cluster.link("h1").heard("leave") and not cluster.told


def test_an_agent_that_ends_without_ranks_takes_its_places_with_it() -> None:
    cluster = Cluster("h0:1,h1:1")
    cluster.pass_time(1.0)
    del cluster.alive[1]
    cluster.slots.lost(1, cluster.now)
    assert not cluster.end("h1")
    cluster.pass_time(0.5)
    assert "h1" not in cluster.alive.values()
    cluster.pass_time(2.0)
    assert not cluster.link("h1").greeted  # it is called again
    assert "h1" not in cluster.alive.values()


def test_a_host_that_says_that_it_goes_is_left_alone_for_a_while() -> None:
    cluster = Cluster("h0:1,h1:1")
    cluster.pass_time(1.0)
    cluster.answer("h1", kind="leaving")
    assert not cluster.link("h1").heard("leave")  # its agent has told them
    del cluster.alive[1]
    assert not cluster.end("h1")
    cluster.pass_time(7.0)
    assert [link.name for link in cluster.links] == ["h0"]
    cluster.pass_time(2.0)
    assert [link.name for link in cluster.links] == ["h0", "h1"]


def test_a_host_that_is_lost_as_soon_as_the_job_has_started_is_called_again() -> None:
    cluster = Cluster("h0:1,h1:1,h2:1")
    del cluster.alive[1]
    assert not cluster.end("h1")
    cluster.pass_time(3.0)
    assert [(link.name, link.greeted) for link in cluster.links] == [("h0", True), ("h2", True), ("h1", False)]
    cluster.probe("h1")
    assert cluster.link("h1").heard("start")


def test_all_agents_are_dismissed_when_the_job_is_over() -> None:
    cluster = Cluster("h0:1,h1:1")
    cluster.listed = "h0:1,h1:1,h2:1"
    cluster.pass_time(1.0)
    cluster.alive.clear()
    cluster.pass_time(1.0)
    assert all(cluster.link(name).heard("dismiss") == [{}] for name in ("h0", "h1"))
    assert cluster.link("h2").killed and cluster.follower.next_due(cluster.now) is None


def test_a_hosts_loss_during_its_probe_is_survived() -> None:
    cluster = Cluster("h0:1,h1:1")
    cluster.listed = "h0:1,h1:1,h2:1"
    cluster.pass_time(2.0)
    cluster.answer("h2", **ABOUT, identity="h2", addresses=[["eth0", "10.0.0.2"]])
    cluster.pass_time(0.5)
    assert cluster.link("h1").heard("listen")
    del cluster.alive[1]
    cluster.end("h1")
    cluster.probe("h2", "10.0.0.2")
    assert cluster.link("h2").heard("start")
