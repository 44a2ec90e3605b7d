"""The slots of an elastic job: when a lost rank is replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from farandole.launch.discovery import choice
from farandole.launch.hosts import MAX_RANKS, HostList
from farandole.launch.options import Elastic, elastic, without_effect
from farandole.launch.placement import HostSlots, Placement, place
from farandole.launch.rank_slots import Backoff, RankSlots
from farandole.launch.spec import JobSpec, SpecError


def slots(max_np: int = 4) -> RankSlots:
    """Two hosts with two slots each."""
    return RankSlots(place(4, [HostSlots("h0", 2), HostSlots("h1", 2)]), max_np, Backoff(1.0, 8.0))


def test_a_lost_rank_is_replaced_in_its_place_after_a_while() -> None:
    made = slots()
    assert made.due(100.0, 3) is None and made.next_due(100.0, 3) is None
    made.lost(3, 100.0)
    assert made.next_due(100.0, 3) == 1.0 and made.due(100.5, 3) is None
    assert made.due(101.0, 3) == Placement(4, 4, "h1", 1, 2, 1, 2)
    assert made.due(101.0, 3) is None


def test_a_provisional_place_is_possible() -> None:
    made = slots()
    made.lost(3, 0.0)
    found = made.due(9.0, 0)
    assert found is not None and max(found.local_size, found.cross_size) <= found.size


def test_each_loss_of_a_place_doubles_its_pause_up_to_the_most() -> None:
    made, now, number = slots(), 0.0, 0
    pauses = []
    for _ in range(6):
        made.lost(number, now)
        pauses.append(made.next_due(now, 3))
        now += pauses[-1] or 0.0
        started = made.due(now, 3)
        assert started is not None
        number = started.rank
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    made.lost(number, now + 9.0)  # it has lived for longer than the most
    assert made.next_due(now + 9.0, 3) == 1.0


def test_other_places_are_not_held_up() -> None:
    made = slots()
    for number in (0, 4):
        made.lost(number, 10.0)
        assert made.due(20.0, 3) is not None
    made.lost(1, 20.0)
    assert made.next_due(20.0, 3) == 1.0


def test_there_are_never_more_than_max_np() -> None:
    made = slots(max_np=3)
    made.lost(3, 0.0)
    assert made.due(9.0, 3) is None and made.next_due(9.0, 3) is None
    assert made.due(9.0, 2) is not None


def test_a_rank_may_come_while_it_has_been_started_or_may_be() -> None:
    made = slots()
    made.lost(0, 0.0)
    assert made.due(9.0, 3) is not None
    made.stop()
    assert made.may_bring and not made.may_start  # rank 4 is on its way
    made.came(4)
    assert not made.may_bring


def test_a_host_that_is_gone_has_no_places() -> None:
    made = slots()
    made.lost(2, 0.0)
    made.close("h1")
    assert made.due(9.0, 3) is None


def test_a_host_gets_more_places_and_loses_the_last_ones() -> None:
    made = slots(max_np=9)
    assert made.resize("h1", 4, 5.0) == [] and made.usable(5.0) == 6
    first, second = made.due(5.0, 4), made.due(5.0, 5)
    assert first is not None and second is not None
    assert [(each.rank, each.host, each.local_rank, each.local_size) for each in (first, second)] == [
        (4, "h1", 2, 4), (5, "h1", 3, 4)
    ]  # fmt: skip
    assert made.due(5.0, 6) is None
    assert made.taken("h1") == [2, 3, 4, 5]
    assert made.resize("h1", 1, 6.0) == [3, 4, 5] and made.taken("h1") == [2]
    made.lost(4, 7.0)  # one that has lost its place
    assert made.due(99.0, 3) is None


def test_free_places_go_first() -> None:
    made = slots()
    made.lost(2, 0.0)
    assert made.resize("h1", 1, 0.0) == [] and made.taken("h1") == [3]
    assert made.due(9.0, 3) is None


def test_a_new_host_has_places_under_numbers_of_its_own() -> None:
    made = slots(max_np=6)
    made.resize("h2", 2, 1.0)
    found = [made.due(1.0, 4), made.due(1.0, 5)]
    assert [(each.rank, each.host, each.local_rank, each.cross_rank, each.cross_size) for each in found if each] == [
        (4, "h2", 0, 2, 3), (5, "h2", 1, 2, 3)
    ]  # fmt: skip


def test_a_newcomer_that_does_not_come_is_named_once() -> None:
    made = slots()
    for number, rank in enumerate((0, 1)):
        made.lost(rank, 0.0)
        assert made.due(10.0 + number, 3) is not None
    assert made.overdue(69.0, 60.0) == [] and made.next_overdue(69.0, 60.0) == 1.0
    made.came(5)
    assert made.overdue(99.0, 60.0) == [(4, "h0")]
    assert made.overdue(99.0, 60.0) == [] and made.next_overdue(99.0, 60.0) is None


def test_one_that_has_ended_is_not_awaited() -> None:
    made = slots()
    made.lost(0, 0.0)
    made.due(10.0, 3)
    made.lost(4, 11.0)
    assert made.overdue(99.0, 60.0) == [] and made.next_overdue(99.0, 60.0) is None


def test_a_lost_place_does_not_count_until_it_may_be_taken() -> None:
    made = slots()
    made.lost(0, 1.0)
    assert made.usable(1.5) == 3 and made.usable(2.0) == 4


def test_a_job_that_comes_to_its_end_starts_no_ranks() -> None:
    made = slots(max_np=8)
    made.resize("h0", 6, 0.0)
    made.stop()
    assert not made.may_start and made.due(9.0, 3) is None and made.next_due(9.0, 3) is None


def options(**given: Any) -> JobSpec:
    """No option but these."""
    return JobSpec.of(**given)


def test_options_of_elastic_jobs_are_understood() -> None:
    assert elastic(options(), 4, {}, has_nodes=False) is None
    assert elastic(options(min_np=2), 4, {}, has_nodes=False) == Elastic(2, 600.0)
    assert elastic(options(max_np=6), 4, {}, has_nodes=False) == Elastic(4, 600.0, 6)  # as many as begin
    given = options(min_np=2, max_np=8, reset_limit=3, blacklist_cooldown_range=(2.0, 9.0), elastic_timeout=5.0)
    assert elastic(given, 4, {"FARANDOLE_ELASTIC_TIMEOUT": "7"}, has_nodes=False) == Elastic(
        2, 5.0, 8, Backoff(2.0, 9.0), 3
    )


def test_options_of_elastic_jobs_without_effect_are_named() -> None:
    assert without_effect(options(num_proc="4")) == ""
    assert without_effect(options(reset_limit=3, slots_per_host=2)).startswith(
        "no effect here: --slots-per-host, --reset-limit; "
    )


def test_discovery_makes_a_job_elastic_as_horovodrun_does() -> None:
    """At least -np ranks by default, and as many as there are slots."""
    assert elastic(options(host_discovery_script="./s", num_proc="4"), 4, {}, has_nodes=False) == Elastic(
        4, 600.0, MAX_RANKS
    )
    given = options(host_discovery_service="train", min_np=2, max_np=8)
    assert elastic(given, 4, {}, has_nodes=False) == Elastic(2, 600.0, 8)


def test_where_hosts_are_asked_for_follows_from_the_options() -> None:
    listed = HostList((HostSlots("h0", 2),), "-H h0:2")
    assert choice.named_source(options(min_np=1)) is None
    found = choice.named_source(options(host_discovery_script="./s -a", slots_per_host=2))
    assert found is not None and found.name == "--host-discovery-script ./s -a"
    assert choice.source_of_list(options(min_np=1), listed, None, {}) is None
    fixed = choice.source_of_list(options(min_np=1, max_np=2), listed, None, {})
    assert fixed is not None and fixed.name == "-H h0:2"
    file = HostList((HostSlots("h0", 2),), "--hostfile hosts")
    watched = choice.source_of_list(options(min_np=1, max_np=2, hostfile=Path("hosts")), file, None, {})
    assert watched is not None and watched.name == "--hostfile hosts"
    assert choice.source_of_list(options(min_np=1, max_np=2), None, None, {}) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"host_discovery_script": "./s", "hosts": "h0:2"}, "give one of --host-discovery-... and -H"),
        ({"host_discovery_script": "./s", "hostfile": Path("hosts")}, "give one of"),
        ({"host_discovery_script": "./s", "host_discovery_service": "train"}, "give one of"),
        ({"host_discovery_service": "-x"}, "--host-discovery-service: '-x' is no name of a host"),
        ({"slots_per_host": 2}, "--slots-per-host is for hosts of"),
    ],
)
def test_two_sources_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        choice.named_source(options(**given))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"min_np": 5}, "--min-np 5 asks for more ranks than the 4"),
        ({"min_np": 1, "max_np": 3}, "--max-np 3 is fewer than the 4 ranks"),
        ({"host_discovery_script": "./s"}, "say with --min-np N how many slots"),
        ({"host_discovery_script": "./s", "num_proc": "4x"}, "-np must be a positive whole number"),
        ({"min_np": 1, "elastic_timeout": 0.0}, "--elastic-timeout must be a positive number of seconds"),
        ({"min_np": 1, "max_np": 4, "blacklist_cooldown_range": (9.0, 1.0)}, "the smaller first, not 9 1"),
    ],
)
def test_options_that_cannot_be_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        elastic(options(**given), 4, {}, has_nodes=False)


def test_settings_and_nodes_of_elastic_jobs_are_checked() -> None:
    with pytest.raises(SpecError, match="FARANDOLE_ELASTIC_TIMEOUT must be"):
        elastic(options(min_np=1), 4, {"FARANDOLE_ELASTIC_TIMEOUT": "soon"}, has_nodes=False)
    with pytest.raises(SpecError, match="not with --nnodes"):
        elastic(options(min_np=1), 4, {}, has_nodes=True)
