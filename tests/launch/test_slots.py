"""The places of an elastic job: when a lost rank is replaced."""

from __future__ import annotations

from farandole.launch.job import Placement, Slots, place
from farandole.launch.slots import Backoff
from farandole.launch.slots import Slots as ElasticSlots


def slots(max_np: int = 4, reset_limit: int = 100) -> ElasticSlots:
    """Two hosts with two places each."""
    return ElasticSlots(place(4, [Slots("h0", 2), Slots("h1", 2)]), max_np, Backoff(1.0, 8.0), reset_limit)


def test_a_lost_rank_is_replaced_in_its_place_after_a_while() -> None:
    made = slots()
    assert made.due(100.0, 3) is None and made.next_due(100.0, 3) is None
    made.lost(3, 100.0)
    assert made.next_due(100.0, 3) == 1.0 and made.due(100.5, 3) is None
    assert made.due(101.0, 3) == Placement(4, 4, "h1", 1, 2, 1, 2)
    assert made.due(101.0, 3) is None


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


def test_the_reset_limit_ends_replacement() -> None:
    made = slots(reset_limit=1)
    made.lost(0, 0.0)
    assert made.due(9.0, 3) is not None
    made.lost(4, 9.0)
    assert made.due(99.0, 3) is None and made.next_due(99.0, 3) is None
    assert made.capacity == 5


def test_a_host_that_is_gone_has_no_places() -> None:
    made = slots()
    made.lost(2, 0.0)
    made.close("h1")
    assert made.due(9.0, 3) is None
