"""Verdicts of the gate of speed from pairs: a build may be slower by the noise of the same run, up to a bound."""

from __future__ import annotations

from collections import Counter

import gate
import pytest
from gate import STARTS, Ratios, orders


@pytest.mark.parametrize(
    ("new", "old", "verdict"),
    [
        ([1.0] * 20, [1.0] * 20, "met"),
        ([1.01] * 20, [1.0] * 20, "met"),
        ([1.02] * 20, [1.0] * 20, "again"),
        ([1.02] * 20, [1.02] * 20, "met"),
        ([1.02] * 20, [0.98] * 20, "met"),
        ([1.04] * 20, [1.0] * 20, "missed"),
        ([1.04] * 20, [1.03] * 20, "missed"),
        ([1.0] * 20, [1.04] * 20, "noisy"),
        ([1.0] * 20, [0.96] * 20, "noisy"),
        ([1.04] * 20, [1.04] * 20, "noisy"),
        ([1.0] * 11 + [3.0] * 9, [1.0] * 20, "met"),
        ([0.5] * 9 + [1.2] * 11, [1.0] * 20, "missed"),
    ],
)
def test_the_medians_of_the_pairs_and_of_the_noise_decide(new: list[float], old: list[float], verdict: str) -> None:
    assert Ratios("4 B", new, old).verdict == verdict


@pytest.mark.parametrize("pairs", [3, 6, 21])
def test_each_build_is_as_often_first_second_and_third(pairs: int) -> None:
    places = Counter(
        (place, at) for start in range(STARTS) for order in orders(start, pairs) for place, at in enumerate(order)
    )
    assert places == {(place, at): pairs // 3 for place in range(3) for at in range(3)}


@pytest.mark.parametrize("pairs", [-3, 0, 1, 20])
def test_other_numbers_of_pairs_are_refused(
    pairs: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["gate.py", "--old", "a", "b", "--new", "c", "d", f"--pairs={pairs}"])
    with pytest.raises(SystemExit) as ended:
        gate.main()
    assert ended.value.code == 2
    assert "positive multiple of 3" in capsys.readouterr().err


@pytest.mark.parametrize(("old", "code"), [(1.0, 0), (1.04, 1)])
def test_a_noisy_row_ends_the_program_with_1(old: float, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["gate.py", "--old", "a", "b", "--new", "c", "d"])
    monkeypatch.setattr(gate, "run", lambda options, folder: [Ratios("4 B", [1.0], [old])])
    assert gate.main() == code
