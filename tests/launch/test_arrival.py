"""The examination of a host that comes while a job runs."""

from __future__ import annotations

from typing import Any

import pytest
from farandole.launch.remote.arrival import Arrival, Present
from farandole.launch.remote.assembly import AssemblyError

OTHERS = {0: Present("h0", "10.0.0.1", "one"), 4: Present("h1", "10.0.0.2", "two")}
GREETING = {
    "kind": "greeting",
    "version": "1.0",
    "python": "/usr/bin/python3",
    "identity": "three",
    "addresses": [["lo", "127.0.0.1"], ["eth0", "10.0.0.9"], ["eth1", "192.168.0.9"]],
}


def greeted(**changed: Any) -> Arrival:
    arrival = Arrival(7, "h9", "1.0", "ab")
    arrival.greet({**GREETING, **changed})
    return arrival


def listening(arrival: Arrival, number: int, *addresses: str) -> list[tuple[int, str, dict[str, Any]]]:
    ports = dict.fromkeys(addresses, 1000 + number)
    return arrival.on_message(number, {"kind": "listening", "ports": ports})


def reached(arrival: Arrival, number: int, *found: tuple[int, str]) -> list[tuple[int, str, dict[str, Any]]]:
    return arrival.on_message(number, {"kind": "reached", "reached": [list(each) for each in found]})


def all_listen(arrival: Arrival) -> list[tuple[int, str, dict[str, Any]]]:
    listening(arrival, 7, *arrival.offered)
    listening(arrival, 0, "10.0.0.1")
    return listening(arrival, 4, "10.0.0.2")


def test_a_newcomer_gets_an_address_that_all_reach() -> None:
    arrival = greeted()
    assert arrival.offered == ["10.0.0.9", "192.168.0.9"]
    asked = {number: content["addresses"] for number, kind, content in arrival.examine(OTHERS) if kind == "listen"}
    assert asked == {0: ["10.0.0.1"], 4: ["10.0.0.2"], 7: arrival.offered}
    targets = {number: content["targets"] for number, kind, content in all_listen(arrival) if kind == "probe"}
    assert targets[7] == [(0, "10.0.0.1", 1000), (4, "10.0.0.2", 1004)]
    assert targets[0] == targets[4] == [(7, "10.0.0.9", 1007), (7, "192.168.0.9", 1007)]
    reached(arrival, 7, (0, "10.0.0.1"), (4, "10.0.0.2"))
    reached(arrival, 0, (7, "10.0.0.9"), (7, "192.168.0.9"))
    assert arrival.address == ""
    assert reached(arrival, 4, (7, "192.168.0.9")) == [(0, "quiet", {}), (4, "quiet", {})]
    assert arrival.address == "192.168.0.9"


def test_another_version_is_refused() -> None:
    with pytest.raises(AssemblyError, match=r"h9 has farandole 0\.9, this host 1\.0; install the same one"):
        greeted(version="0.9")


def test_a_second_name_of_a_machine_is_refused() -> None:
    with pytest.raises(AssemblyError, match="h1 and h9 are one machine"):
        greeted(identity="two").examine(OTHERS)


def test_a_newcomer_that_does_not_reach_the_others_is_refused() -> None:
    arrival = greeted()
    arrival.examine(OTHERS)
    all_listen(arrival)
    reached(arrival, 0, (7, "10.0.0.9"))
    reached(arrival, 4, (7, "10.0.0.9"))
    with pytest.raises(AssemblyError, match=r"h9 cannot connect to h1 \(10\.0\.0\.2\), where the job expects it"):
        reached(arrival, 7, (0, "10.0.0.1"))


def test_a_newcomer_that_is_not_reached_is_refused() -> None:
    arrival = greeted()
    arrival.examine(OTHERS)
    all_listen(arrival)
    reached(arrival, 7, (0, "10.0.0.1"), (4, "10.0.0.2"))
    reached(arrival, 0, (7, "10.0.0.9"))
    with pytest.raises(AssemblyError, match=r"h1 cannot connect to h9 \(10\.0\.0\.9, 192\.168\.0\.9\)"):
        reached(arrival, 4)


@pytest.mark.parametrize("step", ["listening", "reached"])
def test_a_host_that_is_lost_meanwhile_is_not_waited_for(step: str) -> None:
    arrival = greeted()
    arrival.examine(OTHERS)
    listening(arrival, 7, *arrival.offered)
    listening(arrival, 0, "10.0.0.1")
    if step == "listening":
        assert {number for number, kind, _ in arrival.forget(4) if kind == "probe"} == {0, 7}
    else:
        listening(arrival, 4, "10.0.0.2")
    reached(arrival, 7, (0, "10.0.0.1"))
    reached(arrival, 0, (7, "10.0.0.9"))
    if step == "reached":
        arrival.forget(4)
    assert arrival.address == "10.0.0.9"
    assert arrival.forget(99) == []


def test_the_first_host_after_all_others_are_lost_is_taken_in() -> None:
    arrival = greeted()
    arrival.examine({0: OTHERS[0]})
    arrival.forget(0)
    listening(arrival, 7, *arrival.offered)
    reached(arrival, 7)
    assert arrival.address == "10.0.0.9"


@pytest.mark.parametrize("message", [{"kind": "listening"}, {"kind": "listening", "ports": "ab"}])
def test_nonsense_is_an_error(message: dict[str, Any]) -> None:
    arrival = greeted()
    arrival.examine(OTHERS)
    with pytest.raises((KeyError, TypeError, ValueError)):
        arrival.on_message(0, message)
