"""The arithmetic of the soak."""

from __future__ import annotations

import pytest
from judge import Steps, growth, united, without, wrong


def test_spans_are_united_and_taken_away() -> None:
    assert united([(5, 6), (0, 2), (1, 3), (4, 4), (6, 7)]) == [(0, 3), (5, 7)]
    assert without((1, 10), [(8, 12), (2, 3), (0, 1.5)]) == [(1.5, 2), (3, 8)]
    assert without((1, 2), [(0, 5)]) == [] and without((1, 2), [(3, 5)]) == [(1, 2)]


def test_steps_are_counted_in_proportion_and_never_go_back() -> None:
    steps = Steps()
    for time, count in ((0, 0), (10, 100), (11, 90), (20, 120)):
        steps.saw(time, count)
    assert steps.during([(0, 5), (10, 20)]) == 70 and steps.done(-1) == 0 and steps.done(99) == 120
    assert steps.rate([(5, 10)]) == 10 and steps.rate([]) == 0


def test_pauses_beside_the_time_in_which_a_rank_is_stopped() -> None:
    steps = Steps()
    for count, time in enumerate((0, 1, 14, 15, 20), 1):
        steps.saw(time, count)
    assert steps.pauses((0, 21), [(2, 12)], 4) == [(15, 20)]
    assert steps.pauses((0, 21), [], 4) == [(1, 14), (15, 20)]
    assert steps.pauses((0, 40), [], 15) == [(20, 40)], "also of a job that takes no step any more"


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("farandole: rank 3 on h1 (pid 70) ended: killed by SIGKILL (signal 9) after 9.1 s; 7 ranks go on.", 3),
        ("[3 h1] farandole: rank 3 (host h1, pid 70) leaves after SIGTERM; 7 ranks go on.", 3),
        ("farandole: waiting for rank 2, still inside a step (10 s).", None),
        ("farandole: 8 ranks on h0", None),
    ],
)
def test_sentences_name_culprits(line: str, rank: int | None) -> None:
    assert wrong([line], {1, 2}) == ([] if rank is None else [line])
    assert wrong([line], {1, 2, 3}) == []


def test_growth_leaves_out_the_begin() -> None:
    assert growth([1, 9, 9, 9, 9, 9, 9, 9]) == 0
    assert growth([*range(100)]) == 50
    assert growth([7, 9]) == 0
