"""Which rows each rank reads: all of them, equally many on each rank, in the same order on all. Pure."""

import pytest
from farandole_spark.ml._shards import RowGroup, Share, order_of

GROUPS = tuple(RowGroup("file", index, rows) for index, rows in enumerate((7, 1, 12, 4)))
TOTAL = 24


def windows_of(share, rows, order=None):
    """Numbers of rows as their place in the whole: (row group, row)."""
    return [
        [(piece.group.index, row) for piece in window for row in range(piece.start, piece.stop)]
        for window in share.windows(rows, order)
    ]


def rows_of(share, order=None):
    (window,) = windows_of(share, share.rows, order)
    return window


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 24, 30])
def test_each_rank_has_as_many_rows_and_none_is_left_out(size):
    shares = [rows_of(Share(GROUPS, rank, size)) for rank in range(size)]
    each = -(-TOTAL // size)
    assert [len(share) for share in shares] == [each] * size
    everything = [(group.index, row) for group in GROUPS for row in range(group.rows)]
    assert [row for share in shares for row in share] == [everything[n % TOTAL] for n in range(each * size)]


def test_row_groups_are_divided_where_a_share_ends():
    assert rows_of(Share(GROUPS, 1, 4)) == [(0, 6), (1, 0), (2, 0), (2, 1), (2, 2), (2, 3)]


def test_batches_are_counted_with_the_last_smaller_one():
    assert [Share(GROUPS, 0, 2).batches(size) for size in (1, 5, 6, 12, 100)] == [12, 3, 2, 1, 1]


def test_a_pass_has_its_own_order_which_all_ranks_share():
    first, second = order_of(20, 5, 0), order_of(20, 5, 1)
    assert sorted(first) == sorted(second) == list(range(20)) and first != second
    assert order_of(20, 5, 1) == second and order_of(20, 6, 1) != second


def test_shares_of_a_shuffled_pass_are_disjoint():
    order = order_of(len(GROUPS), 3, 0)
    halves = [rows_of(Share(GROUPS, rank, 2), order) for rank in range(2)]
    assert len({*halves[0]} | {*halves[1]}) == TOTAL
    assert halves[0][0][0] == order[0]


@pytest.mark.parametrize("rows", [1, 5, 12, 24, 100])
def test_windows_have_equally_many_rows_in_the_same_order(rows):
    windows = windows_of(Share(GROUPS, 0, 1), rows)
    assert [len(window) for window in windows[:-1]] == [rows] * (len(windows) - 1) and len(windows[-1]) <= rows
    assert [row for window in windows for row in window] == rows_of(Share(GROUPS, 0, 1))
