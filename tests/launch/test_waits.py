"""Times in which ranks wait for one of them."""

from __future__ import annotations

import random

import pytest
from farandole.observe.waits import Span, arrivals_of, covered
from inspection_samples import called


@pytest.mark.parametrize(
    ("spans", "time"), [([], 0.0), ([(0, 10), (5, 20)], 20.0), ([(0, 10), (1, 2), (30, 40)], 20.0)]
)
def test_time_that_is_covered_twice_counts_once(spans: list[Span], time: float) -> None:
    assert covered(spans) == time
    assert covered(spans, 5, 35) == max(0, time - 10 if len(spans) == 3 else time - 5)


def waited_for(calls: dict[int, list[tuple[str, int, int]]]) -> dict[int, list[Span]]:
    ranks = {rank: [called(*each) for each in made] for rank, made in calls.items()}
    return arrivals_of(ranks, len(ranks), 0, 100).waits


def test_the_others_wait_where_all_of_them_do() -> None:
    assert waited_for({0: [("a", 0, 9)], 1: [("a", 3, 9)], 2: [("a", 8, 9)]}) == {2: [(3, 8)]}


def test_a_rank_computes_beside_a_call_that_is_in_flight_when_it_makes_another() -> None:
    assert waited_for({0: [("a", 0, 60), ("b", 40, 60)], 1: [("a", 50, 60), ("b", 51, 60)]}) == {1: [(40, 51)]}


def test_calls_whose_last_rank_is_not_known_are_left_out() -> None:
    assert waited_for({0: [("a", 0, 9)], 1: [("b", 5, 9)]}) == {}
    assert waited_for({0: [("a", 0, 1)]}) == {}


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_waited_for_longer_than_anybody_waits(seed: int) -> None:
    """Ranks whose calls overlap as it happens: by moments, of which each rank is either in a last call or not."""
    draw, size, count = random.Random(seed), 3, 12
    begins = {rank: sorted(draw.sample(range(100), count)) for rank in range(size)}
    ends = [max(begins[rank][number] for rank in range(size)) + draw.randrange(3) for number in range(count)]
    last = [max((begins[each][number], each) for each in range(size)) for number in range(count)]
    calls = {rank: [(f"{n}", begins[rank][n], ends[n]) for n in range(count)] for rank in range(size)}
    for late, spans in waited_for(calls).items():
        for moment in range(100):
            waits = [any(_blocks(calls[rank], last, n, late, moment + 0.5) for n in range(count)) for rank in calls]
            inside = any(begin < moment + 0.5 < end for begin, end in spans)
            assert inside == all(waits[rank] for rank in calls if rank != late)


def _blocks(
    calls: list[tuple[str, int, int]], last: list[tuple[int, int]], number: int, late: int, moment: float
) -> bool:
    (_, begin, end), (all_came, last_rank) = calls[number], last[number]
    after = calls[number + 1][1] if number + 1 < len(calls) else 1e9
    return last_rank == late and begin < moment < all_came and end <= after
