"""Figures of one rank for its own program; core/tests/python/test_scalars.py has the way to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from farandole.observe.diagnosis import Rank
from farandole.observe.live.figures import figures
from inspection_samples import NOW_NS, operation, rank


def made(number: int, late_s: float, size: int = 2) -> Rank:
    """Ten operations of 30 ms in steps of 100 ms, of 1,000 bytes."""
    done = [
        replace(operation("grad", n, ago_s=1 - n / 10 - late_s, ended_ago_s=0.97 - n / 10, bytes=1000), number=n)
        for n in range(10)
    ]
    return rank(number, *done, size=size)


def test_the_last_rank_is_named_where_all_are_here() -> None:
    seen = [made(0, late_s=-0.05), made(1, late_s=0.0)]
    own = seen[0].recording.pid
    found = figures(seen, own, NOW_NS)
    assert found["last_rank"] == 1
    assert found["last_rank_ratio"] == pytest.approx(0.5, rel=0.1)
    assert found["waiting_ratio"] == pytest.approx(0.5, rel=0.1)
    assert found["in_operations_ratio"] == pytest.approx(0.8, rel=0.1)
    assert found["bytes_per_second"] == pytest.approx(10_000, rel=0.1)


def test_no_rank_is_named_where_others_are_not_here() -> None:
    seen = [made(0, late_s=0.0, size=3), made(1, late_s=0.0, size=3)]
    assert "last_rank" not in figures(seen, seen[0].recording.pid, NOW_NS)


def test_a_rank_without_a_recorder_has_no_figures() -> None:
    assert figures([], 7, NOW_NS) == {}
    assert figures([made(0, late_s=0.0)], 7, NOW_NS) == {}
