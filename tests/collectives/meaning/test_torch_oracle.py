"""Random operations of farandole_torch, in all layouts of its tensors and with backward after them, against NumPy.

A failure prints FARANDOLE_SEED and FARANDOLE_CASE; with both set, only that case is run. FARANDOLE_LONG=1 runs 4,000.
"""

import os

import pytest
import shared
import torch_cases
from cases import Key
from living import modes
from meanings import difference
from performing import perform
from torch_performing import perform_torch_window
from windows import keys_that_hold

PLACES = [(ranks, mode) for ranks in (1, 2, 3) for mode in modes(ranks)]
CASES = 4_000 if os.environ.get("FARANDOLE_LONG") else 240
SEED = int(os.environ.get("FARANDOLE_SEED", "1"))
ONLY = os.environ.get("FARANDOLE_CASE", "")

pytestmark = pytest.mark.timeout(1800 if os.environ.get("FARANDOLE_LONG") else 120)


@pytest.mark.parametrize(("ranks", "mode"), PLACES)
def test_every_operation_and_its_gradient_are_what_they_mean(ranks, mode):
    keys = keys_that_hold(CASES / len(PLACES), SEED, ranks, mode, ONLY)
    draw = torch_cases.draw_torch_window
    answers = shared.run(ranks, perform, keys, draw, perform_torch_window, timeout=1200)
    failures = [text for _, failed in answers for text in failed]
    print(f"{len(keys)} windows, {answers[0][0]} cases")
    assert not failures, "\n".join(failures[:6])
    assert ONLY or answers[0][0] >= CASES / len(PLACES)


def test_a_wrong_gradient_is_found():
    case = torch_cases.TorchCase(
        Key(1, 2, "shared", 0), 0, "allgather", (0, 1), True, "float64", shapes=[(0,)], rows=[[1, 2]]
    )
    mine, other = case.weights(0, 1), case.weights(0, 0)
    want = case.expect_gradient(0, 1)
    assert difference(((mine + other) / 2)[1:], want) == ""
    for wrong in (mine[1:], (mine + other)[1:], ((mine + other) / 2)[:2], ((mine + other) / 2)):
        assert difference(wrong, want) != ""
