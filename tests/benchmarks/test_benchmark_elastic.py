"""The figures of a join, from the steps that ranks say they have finished."""

import pytest
from contestants import ContestantError
from elastic_joins import HERE, THERE, Join, Line, judge, target_results


def log(*steps):
    """Of (ranks, time)."""
    return [Line(ranks, number, at, 0.0, 0.0) for number, (ranks, at) in enumerate(steps)]


def test_the_pause_is_the_longest_gap_around_the_join_less_a_step():
    one = log((3, 1.0), (3, 1.5), (4, 2.7), (4, 3.0), (4, 3.4), (4, 3.7))
    other = log((4, 0.2), (3, 1.5), (4, 2.6), (4, 3.0), (4, 3.3), (4, 3.6))  # still with the rank that died
    join = judge([one, other], 0.9, 1.2)
    assert join.usual_step_s == pytest.approx(0.3)
    assert join.pause_s == pytest.approx(0.9)
    assert (join.import_s, join.steps_meanwhile) == (pytest.approx(0.3), 0)


def test_steps_without_a_join_have_no_figures():
    with pytest.raises(ContestantError, match="took no step of three"):
        judge([log((4, 1.0), (4, 1.5))], 0.0, 1.0)


def test_a_pause_may_take_a_step_or_250_ms_and_between_hosts_the_streaming():
    joins = {HERE: [Join(0.1, 0.25, 1.0, 3), Join(0.5, 0.4, 1.0, 3)], THERE: [Join(0.3, 1.1, 1.0, 3)]}
    here, there = target_results(joins)
    assert (here.met, round(here.measured)) == (True, 100)
    assert (there.met, round(there.measured)) == (False, 104)
    assert target_results({HERE: [], THERE: []}) == []
