"""Times in which ranks wait for one of them."""

from __future__ import annotations

import random

import pytest
from farandole.observe.waits import Call, Span, covered, waited_for


@pytest.mark.parametrize(
    ("spans", "time"), [([], 0.0), ([(0, 10), (5, 20)], 20.0), ([(0, 10), (1, 2), (30, 40)], 20.0)]
)
def test_time_that_is_covered_twice_counts_once(spans: list[Span], time: float) -> None:
    assert covered(spans) == time
    assert covered(spans, 5, 35) == max(0, time - 10 if len(spans) == 3 else time - 5)


def test_the_others_wait_where_all_of_them_do() -> None:
    found = waited_for({0: [Call(0, 9, 8, 2)], 1: [Call(3, 9, 8, 2)], 2: [Call(8, 9, 8, 2)]})
    assert found == {2: [(3, 8)]}


def test_a_rank_computes_beside_a_call_that_is_in_flight_when_it_makes_another() -> None:
    first, second = Call(0, 60, 50, 1), Call(40, 60, 51, 1)
    late = [Call(50, 60, 50, 1), Call(51, 60, 51, 1)]
    assert waited_for({0: [first, second], 1: late}) == {1: [(40, 51)]}


def test_calls_whose_last_rank_is_not_known_are_left_out() -> None:
    assert waited_for({0: [Call(0, 9)], 1: [Call(5, 9)]}) == {}
    assert waited_for({0: [Call(0, 1, 0, 0)]}) == {}


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_waited_for_longer_than_anybody_waits(seed: int) -> None:
    """Ranks whose calls overlap as it happens: by moments, of which each rank is either in a last call or not."""
    draw, size, count = random.Random(seed), 3, 12
    begins = {rank: sorted(draw.sample(range(100), count)) for rank in range(size)}
    ends = [max(begins[rank][number] for rank in range(size)) + draw.randrange(3) for number in range(count)]
    calls: dict[int, list[Call]] = {}
    for rank in range(size):
        last = [max((begins[each][number], each) for each in range(size)) for number in range(count)]
        calls[rank] = [Call(begins[rank][n], ends[n], *last[n]) for n in range(count)]
    for late, spans in waited_for(calls).items():
        for moment in range(100):
            waits = [any(_blocks(calls[rank], each, late, moment + 0.5) for each in range(count)) for rank in calls]
            inside = any(begin < moment + 0.5 < end for begin, end in spans)
            assert inside == all(waits[rank] for rank in calls if rank != late)


def _blocks(calls: list[Call], number: int, late: int, moment: float) -> bool:
    call, after = calls[number], calls[number + 1].begin if number + 1 < len(calls) else 1e9
    return call.last_rank == late and call.begin < moment < call.all_came and call.end <= after
