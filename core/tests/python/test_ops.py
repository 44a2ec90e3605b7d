"""The pure parts: reductions, names, factors, groups, named tensors."""

import warnings

import numpy as np
import pytest
from farandole import Average, Max, Min, Sum
from farandole._api.ops import check_root, predivide_factors, reduction
from farandole.numpy import _ArrayAdapter
from farandole.plugin import even_groups


def test_average_is_the_default_and_op_wins():
    assert reduction(None, None) is Average
    assert reduction(None, Max) is Max
    assert reduction(None, 0) is Sum


def test_the_legacy_argument_warns_where_the_user_called():
    def collective(average):
        return reduction(average, None)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert collective(True) is Average
        assert collective(False) is Sum
    assert [each.category for each in caught] == [DeprecationWarning] * 2
    assert caught[0].filename == __file__


def test_contradictions_and_unknown_reductions_are_refused():
    with pytest.raises(ValueError, match="average=True and op="):
        reduction(True, Sum)
    with pytest.raises(ValueError, match="op=9 is no reduction"):
        reduction(None, 9)


def test_a_reduction_in_the_place_of_average_is_refused():
    with pytest.raises(ValueError, match="average=Min is a reduction: pass it as op=Min"):
        reduction(Min, None)


def test_roots_are_ranks():
    check_root(3, 4)
    for root in (-1, 4):
        with pytest.raises(ValueError, match=f"root_rank={root}.*0 to 3"):
            check_root(root, 4)


def test_predivision_is_undone_within_an_average_only():
    assert predivide_factors(Average, 4.0) == (0.25, 4.0)
    assert predivide_factors(Sum, 1.0) == (1.0, 1.0)
    with pytest.raises(ValueError, match="needs op=Average"):
        predivide_factors(Sum, 2.0)
    with pytest.raises(ValueError, match="positive"):
        predivide_factors(Average, 0.0)


def test_groups_are_nearly_equal_and_complete():
    for count in range(8):
        for groups in range(1, 10):
            made = even_groups(count, groups)
            assert [index for group in made for index in group] == list(range(count))
            lengths = [len(group) for group in made]
            assert not lengths or max(lengths) - min(lengths) <= 1
            assert len(made) == min(count, groups)
    assert even_groups(5, 0) == []
    with pytest.raises(ValueError, match="negative"):
        even_groups(5, -1)


def test_named_tensors_come_in_an_order_all_ranks_share():
    adapter, a, b = _ArrayAdapter(), np.zeros(1), np.ones(1)
    assert [name for name, _ in adapter.items({"b": b, "a": a, "c": None})] == ["a", "b"]
    assert [name for name, _ in adapter.items([("b", b), ("a", a)])] == ["b", "a"]
    assert [name for name, _ in adapter.items(iter([a, b]))] == ["0", "1"]
    for wrong in (5, "text", {"a": 5}, [("a", a), ("a", b)], [("a", "b")]):
        with pytest.raises(ValueError):
            adapter.items(wrong)
