"""What the gate of speed concludes from pairs: noise is measured in the same run, and a slower build never passes."""

from __future__ import annotations

import pytest
from gate import Ratios


@pytest.mark.parametrize(
    ("new", "old", "verdict"),
    [
        ([1.0] * 20, [1.0] * 20, "met"),
        ([1.01] * 20, [1.0] * 20, "met"),
        ([1.02] * 20, [1.0] * 20, "again"),
        ([1.02] * 20, [1.02] * 20, "met"),
        ([1.02] * 20, [0.98] * 20, "met"),
        ([1.04] * 20, [1.0] * 20, "missed"),
        ([1.0] * 11 + [3.0] * 9, [1.0] * 20, "met"),
        ([0.5] * 9 + [1.2] * 11, [1.0] * 20, "missed"),
    ],
)
def test_the_median_of_the_pairs_decides(new: list[float], old: list[float], verdict: str) -> None:
    assert Ratios("4 B", new, old).verdict == verdict
