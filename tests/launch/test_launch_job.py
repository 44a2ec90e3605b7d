"""-np and -H -> places. Pure."""

from __future__ import annotations

import pytest
from farandole.launch.job import JobError, Placement, Slots, parse_hosts, place, plan

NAMES = frozenset({"localhost", "127.0.0.1", "::1", "box", "box.example.org"})


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("localhost", [("localhost", 1)]),
        ("localhost:4", [("localhost", 4)]),
        ("h0:2,h1", [("h0", 2), ("h1", 1)]),
        ("h0:2, h1:3", [("h0", 2), ("h1", 3)]),
        ("h0:2,h0:3", [("h0", 5)]),
        ("127.0.0.1:2", [("127.0.0.1", 2)]),
        ("[::1]:2", [("::1", 2)]),
        ("a-b.c_d:1", [("a-b.c_d", 1)]),
    ],
)
def test_hosts_are_understood(text: str, slots: list[tuple[str, int]]) -> None:
    assert [(one.host, one.count) for one in parse_hosts(text)] == slots


@pytest.mark.parametrize(
    "text",
    ["", ",", "h0,", ":4", "h0:", "h0:0", "h0:-1", "h0:x", "h0:2:3", "-oProxyCommand=x", "$(id)", "h 0", "h0:2\nh1:2"],
)
def test_hosts_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(JobError):
        parse_hosts(text)


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.5", "4 ", "+4", "٤", "99999999999"])
def test_a_number_of_ranks_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(JobError, match="-np must be"):
        plan(text, None, NAMES)


def test_ranks_are_counted_per_host() -> None:
    assert plan("2", None, NAMES) == [
        Placement(0, 2, "localhost", 0, 2, 0, 1),
        Placement(1, 2, "localhost", 1, 2, 0, 1),
    ]


def test_hosts_alone_mean_all_their_slots() -> None:
    assert len(plan(None, "localhost:3,127.0.0.1:2,BOX", NAMES)) == 6


def test_fewer_ranks_than_slots_are_fine() -> None:
    assert len(plan("2", "localhost:3", NAMES)) == 2


def test_more_ranks_than_slots_says_both_numbers() -> None:
    with pytest.raises(JobError, match=r"-np 5 .* 4 slots of -H localhost:4"):
        plan("5", "localhost:4", NAMES)


def test_another_machine_is_refused_by_name() -> None:
    with pytest.raises(JobError, match=r"gpu7 is another machine"):
        plan(None, "localhost:2,gpu7:2", NAMES)


def test_neither_option_says_how_to_start() -> None:
    with pytest.raises(JobError, match="farandole run -np 4"):
        plan(None, None, NAMES)


@pytest.mark.parametrize("slots", [[1], [4], [2, 2], [3, 1, 2], [1, 4], [2, 1, 1, 3]])
def test_places_are_consistent_on_unequal_hosts(slots: list[int]) -> None:
    hosts = [Slots(f"h{index}", count) for index, count in enumerate(slots)]
    for ranks in range(1, sum(slots) + 1):
        places = place(ranks, hosts)
        assert [one.rank for one in places] == list(range(ranks))
        for one in places:
            same_host = [other for other in places if other.host == one.host]
            across = [other for other in places if other.local_rank == one.local_rank]
            assert (one.size, one.local_size, one.cross_size) == (ranks, len(same_host), len(across))
            assert same_host[one.local_rank] is one
            assert across[one.cross_rank] is one
