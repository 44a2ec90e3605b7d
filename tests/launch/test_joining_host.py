"""The checks of a host that comes while a job runs."""

from __future__ import annotations

from typing import Any

import pytest
from farandole.launch.head.address_search import AssemblyError
from farandole.launch.head.joining_host import JoiningHost, Present

OTHERS = {0: Present("h0", "10.0.0.1", "one"), 4: Present("h1", "10.0.0.2", "two")}
GREETING = {
    "kind": "greeting",
    "version": "1.0",
    "python": "/usr/bin/python3",
    "identity": "three",
    "addresses": [["lo", "127.0.0.1"], ["eth0", "10.0.0.9"], ["eth1", "192.168.0.9"]],
}


def greeted(**changed: Any) -> JoiningHost:
    joining = JoiningHost(7, "h9", "1.0", "ab")
    joining.greet({**GREETING, **changed})
    return joining


def listening(joining: JoiningHost, number: int, *addresses: str) -> list[tuple[int, str, dict[str, Any]]]:
    ports = dict.fromkeys(addresses, 1000 + number)
    return joining.on_message(number, {"kind": "listening", "ports": ports})


def reached(joining: JoiningHost, number: int, *found: tuple[int, str]) -> list[tuple[int, str, dict[str, Any]]]:
    return joining.on_message(number, {"kind": "reached", "reached": [list(each) for each in found]})


def all_listen(joining: JoiningHost) -> list[tuple[int, str, dict[str, Any]]]:
    listening(joining, 7, *joining.offered)
    listening(joining, 0, "10.0.0.1")
    return listening(joining, 4, "10.0.0.2")


def test_a_newcomer_gets_an_address_that_all_reach() -> None:
    joining = greeted()
    assert joining.offered == ["10.0.0.9", "192.168.0.9"]
    asked = {number: content["addresses"] for number, kind, content in joining.probe(OTHERS) if kind == "listen"}
    assert asked == {0: ["10.0.0.1"], 4: ["10.0.0.2"], 7: joining.offered}
    targets = {number: content["targets"] for number, kind, content in all_listen(joining) if kind == "probe"}
    assert targets[7] == [(0, "10.0.0.1", 1000), (4, "10.0.0.2", 1004)]
    assert targets[0] == targets[4] == [(7, "10.0.0.9", 1007), (7, "192.168.0.9", 1007)]
    reached(joining, 7, (0, "10.0.0.1"), (4, "10.0.0.2"))
    reached(joining, 0, (7, "10.0.0.9"), (7, "192.168.0.9"))
    assert joining.address == ""
    assert reached(joining, 4, (7, "192.168.0.9")) == [(0, "quiet", {}), (4, "quiet", {})]
    assert joining.address == "192.168.0.9"


def test_another_version_is_refused() -> None:
    with pytest.raises(AssemblyError, match=r"h9 has farandole 0\.9, this host 1\.0; install the same one"):
        greeted(version="0.9")


def test_a_second_name_of_a_machine_is_refused() -> None:
    with pytest.raises(AssemblyError, match="h1 and h9 are one machine"):
        greeted(identity="two").probe(OTHERS)


def test_a_newcomer_that_does_not_reach_the_others_is_refused() -> None:
    joining = greeted()
    joining.probe(OTHERS)
    all_listen(joining)
    reached(joining, 0, (7, "10.0.0.9"))
    reached(joining, 4, (7, "10.0.0.9"))
    with pytest.raises(AssemblyError, match=r"h9 cannot connect to h1 \(10\.0\.0\.2\); look for a firewall"):
        reached(joining, 7, (0, "10.0.0.1"))


def test_a_newcomer_that_is_not_reached_is_refused() -> None:
    joining = greeted()
    joining.probe(OTHERS)
    all_listen(joining)
    reached(joining, 7, (0, "10.0.0.1"), (4, "10.0.0.2"))
    reached(joining, 0, (7, "10.0.0.9"))
    with pytest.raises(AssemblyError, match=r"h1 cannot connect to h9 \(10\.0\.0\.9, 192\.168\.0\.9\)"):
        reached(joining, 4)


@pytest.mark.parametrize("step", ["listening", "reached"])
def test_a_host_that_is_lost_meanwhile_is_not_waited_for(step: str) -> None:
    joining = greeted()
    joining.probe(OTHERS)
    listening(joining, 7, *joining.offered)
    listening(joining, 0, "10.0.0.1")
    if step == "listening":
        assert {number for number, kind, _ in joining.forget(4) if kind == "probe"} == {0, 7}
    else:
        listening(joining, 4, "10.0.0.2")
    reached(joining, 7, (0, "10.0.0.1"))
    reached(joining, 0, (7, "10.0.0.9"))
    if step == "reached":
        joining.forget(4)
    assert joining.address == "10.0.0.9"
    assert joining.forget(99) == []


def test_the_first_host_after_all_others_are_lost_is_taken_in() -> None:
    joining = greeted()
    joining.probe({0: OTHERS[0]})
    joining.forget(0)
    listening(joining, 7, *joining.offered)
    reached(joining, 7)
    assert joining.address == "10.0.0.9"


@pytest.mark.parametrize("message", [{"kind": "listening"}, {"kind": "listening", "ports": "ab"}])
def test_nonsense_is_an_error(message: dict[str, Any]) -> None:
    joining = greeted()
    joining.probe(OTHERS)
    with pytest.raises((KeyError, TypeError, ValueError)):
        joining.on_message(0, message)
