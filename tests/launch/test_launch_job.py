"""-np and -H -> places. Pure."""

from __future__ import annotations

import pytest
from farandole.launch.hosts import HostList, parse_hosts
from farandole.launch.placement import HostSlots, Placement, place, plan
from farandole.launch.spec import SpecError

NAMES = frozenset({"localhost", "127.0.0.1", "::1", "box", "box.example.org"})


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.5", "4 ", "+4", "٤", "99999999999"])
def test_a_number_of_ranks_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="-np must be"):
        plan(text, None, NAMES)


def test_ranks_are_counted_per_host() -> None:
    assert plan("2", None, NAMES) == [
        Placement(0, 2, "localhost", 0, 2, 0, 1),
        Placement(1, 2, "localhost", 1, 2, 0, 1),
    ]


def test_hosts_alone_mean_all_their_slots() -> None:
    assert len(plan(None, parse_hosts("localhost:3,127.0.0.1:2,BOX"), NAMES)) == 6


def test_fewer_ranks_than_slots_are_fine() -> None:
    assert len(plan("2", parse_hosts("localhost:3"), NAMES)) == 2


def test_more_ranks_than_slots_says_both_numbers_and_the_hosts() -> None:
    with pytest.raises(SpecError, match=r"-np 5 .* 4 slots of -H localhost:4 on 1 host: lower -np"):
        plan("5", parse_hosts("localhost:4"), NAMES)
    with pytest.raises(SpecError, match=r"-np 5 .* 4 slots of -H h0:3,h1 on 2 hosts: lower -np"):
        plan("5", parse_hosts("h0:3,h1"), NAMES)


def hosts_of(hosts: str, ranks: str | None = None) -> list[str]:
    return [each.host for each in plan(ranks, parse_hosts(hosts), NAMES)]


def test_other_hosts_keep_the_names_that_were_typed() -> None:
    assert hosts_of("h0:2,Bob@H1,[fd00::1]") == ["h0", "h0", "Bob@H1", "fd00::1"]


def test_this_machine_is_localhost_unless_other_hosts_take_part() -> None:
    assert hosts_of("BOX:2") == ["localhost"] * 2
    assert hosts_of("BOX:2,h1") == ["BOX", "BOX", "h1"]


def test_the_names_of_this_machine_are_one_host_where_the_first_stands() -> None:
    assert hosts_of("h0,127.0.0.1:1,h1,box:2") == ["h0", "127.0.0.1", "127.0.0.1", "127.0.0.1", "h1"]


def test_a_user_on_this_machine_is_refused() -> None:
    with pytest.raises(SpecError, match="bob@box is this machine"):
        hosts_of("bob@box:2")


def test_auto_means_all_slots_or_the_places_of_this_machine() -> None:
    assert hosts_of("h0:2,h1", "auto") == ["h0", "h0", "h1"]
    assert len(plan("auto", None, NAMES, slots_here=3)) == 3


def test_only_the_ranks_of_a_job_are_limited_not_the_slots() -> None:
    many = HostList((HostSlots("h0", 65536), HostSlots("h1", 1)), "-H ...")
    assert len(plan("2", many, NAMES)) == 2
    with pytest.raises(SpecError, match="offers 65537 slots, more than the 65536 ranks"):
        plan(None, many, NAMES)


def test_the_largest_plan_places_every_rank() -> None:
    hosts = ",".join(f"node{index}.cluster.example.org:66" for index in range(1000))
    places = plan("65536", parse_hosts(hosts), NAMES)
    assert (len(places), places[-1].cross_rank, places[65].cross_size) == (65536, 992, 992)


def test_neither_option_says_how_to_start() -> None:
    with pytest.raises(SpecError, match="farandole run -np 4"):
        plan(None, None, NAMES)


@pytest.mark.parametrize("slots", [[1], [4], [2, 2], [3, 1, 2], [1, 4], [2, 1, 1, 3]])
def test_places_are_consistent_on_unequal_hosts(slots: list[int]) -> None:
    hosts = [HostSlots(f"h{index}", count) for index, count in enumerate(slots)]
    for ranks in range(1, sum(slots) + 1):
        places = place(ranks, hosts)
        assert [one.rank for one in places] == list(range(ranks))
        for one in places:
            same_host = [other for other in places if other.host == one.host]
            across = [other for other in places if other.local_rank == one.local_rank]
            assert (one.size, one.local_size, one.cross_size) == (ranks, len(same_host), len(across))
            assert same_host[one.local_rank] is one
            assert across[one.cross_rank] is one
