"""The page about allreduce between hosts, from what was measured."""

from __future__ import annotations

from between_hosts import GLOO, MIB, SIZES, World, link_lines
from tables import OURS
from turns import Times


def world(ranks_each: int, sizes: tuple[int, ...] = SIZES) -> World:
    rows = {size: {OURS: Times(size, 2 * size, 1), GLOO: Times(3 * size, 4 * size, 1)} for size in sizes}
    return World("unshaped", 2, ranks_each, rows)


def test_a_link_has_one_table_with_a_row_for_each_world() -> None:
    head, _, one, four = link_lines([world(1), world(4)])
    assert head.startswith("| hosts | ranks each | 4 B | gloo : ours | 1 MiB |")
    assert one.startswith("| 2 | 1 | 4.00 / 8.00 | 3.00 | 1048576 / 2097152 | 3.00 |")
    assert four.startswith("| 2 | 4 |")


def test_a_run_of_other_sizes_shows_them_and_leaves_out_what_gloo_did_not_measure() -> None:
    some = world(1, (16 * MIB,))
    del some.rows[16 * MIB][GLOO]
    assert link_lines([some])[2] == "| 2 | 1 | 16777216 / 33554432 |  |"
