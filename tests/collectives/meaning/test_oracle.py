"""Random operations against NumPy: every rank derives the same cases from a seed and compares what it gets.

A failure prints FARANDOLE_SEED and FARANDOLE_CASE; with both set, only that case is run. FARANDOLE_LONG=1 runs 20,000.
"""

import itertools
import os

import pytest
import shared
from living import MODES, modes
from performing import perform
from windows import keys_that_hold

PLACES = [(ranks, mode) for ranks in (1, 2, 3, 4) for mode in modes(ranks)]
CASES = 20_000 if os.environ.get("FARANDOLE_LONG") else 500
SEED = int(os.environ.get("FARANDOLE_SEED", "1"))
ONLY = os.environ.get("FARANDOLE_CASE", "")

pytestmark = pytest.mark.timeout(1800 if os.environ.get("FARANDOLE_LONG") else 120)


@pytest.mark.parametrize(("ranks", "mode"), PLACES)
def test_every_operation_gives_what_it_means(ranks, mode):
    keys = keys_that_hold(CASES / len(PLACES), SEED, ranks, mode, ONLY)
    answers = shared.run(ranks, perform, keys, timeout=1200)
    failures = [text for _, failed in answers for text in failed]
    print(f"{len(keys)} windows, {answers[0][0]} cases")
    assert not failures, "\n".join(failures[:6])
    assert ONLY or answers[0][0] >= CASES / len(PLACES)


def test_a_wrong_result_is_found():
    """The oracle itself: one wrong element, a wrong shape, and a value just outside the slack are seen."""
    import meanings
    import numpy as np

    inputs = [np.arange(6, dtype="float32") + rank for rank in range(3)]
    want = meanings.reduction("Average", inputs, 3, 1.0, 1.0)
    right = (inputs[0] + inputs[1] + inputs[2]) / 3
    assert meanings.difference(right, want) == ""
    for wrong in (right[:5], right + np.float32(1e-5) * np.eye(6, dtype="float32")[3], right * np.float32("nan")):
        assert meanings.difference(wrong, want) != ""
    whole = meanings.reduction("Sum", [np.array([200], "uint8"), np.array([100], "uint8")], 2, 1.0, 0.5)
    assert whole.values.tolist() == [22]  # wraps to 44, is halved


def test_a_place_is_never_left_out():
    assert set(itertools.chain(*(modes(ranks) for ranks in (1, 2, 3, 4)))) == set(MODES)
