"""Equal inputs give equal bits: whoever arrives first, however tensors are packed, whichever algorithm runs.

The reference is the order of summation itself (order.py), so configurations agree with each other, too: for
float32, float64 and integers one group of all ranks has the order of all ranks apart. A failure prints FARANDOLE_SEED
and FARANDOLE_CASE; with both set, only that one is run. FARANDOLE_LONG=1 runs 1,000 configurations.
"""

import os

import bits
import numpy as np
import order
import pytest
import shared

RANKS = (2, 3, 4, 5)
CONFIGURATIONS = 1000 if os.environ.get("FARANDOLE_LONG") else 52
SEED = int(os.environ.get("FARANDOLE_SEED", "1"))
ONLY = os.environ.get("FARANDOLE_CASE", "")

pytestmark = pytest.mark.timeout(1800 if os.environ.get("FARANDOLE_LONG") else 120)


@pytest.mark.parametrize("ranks", RANKS)
def test_bits_depend_on_inputs_and_groups_only(ranks):
    numbers = [k for k in range(CONFIGURATIONS // len(RANKS)) if ONLY in ("", f"{ranks}-{k}")]
    answers = shared.run(ranks, bits.check, SEED, ranks, numbers, timeout=1200)
    wrong = [text for _, texts in answers for text in texts]
    print(f"{len(numbers)} configurations, {answers[0][0]} tensors compared")
    assert not wrong, "\n".join(wrong[:5])
    assert ONLY or answers[0][0] >= len(numbers)


def test_one_group_and_all_apart_have_one_order():
    inputs = [np.random.default_rng(rank).standard_normal(1000).astype("float32") for rank in range(5)]
    together = order.bits("Average", inputs, order.groups_of(5, ()))
    apart = order.bits("Average", inputs, order.groups_of(5, range(5)))
    assert together.tobytes() == apart.tobytes()


@pytest.mark.parametrize("ranks", [4, 5])
def test_the_data_show_the_order(ranks):
    """Were the order of additions another one, the suite would see it."""
    configuration = next(c for c in (bits.draw(1, ranks, k) for k in range(100)) if has_float_sum(c))
    k = next(k for k, tensor in enumerate(configuration.tensors) if is_float_sum(tensor))
    inputs = [bits.data(configuration, k, 0, rank) for rank in range(ranks)]
    straight = inputs[0] + inputs[1]
    for each in inputs[2:]:
        straight = straight + each
    right = order.bits("Sum", inputs, order.groups_of(ranks, ()))
    assert straight.tobytes() != right.tobytes()
    np.testing.assert_allclose(straight, right, rtol=1e-2)


def has_float_sum(configuration):
    return any(is_float_sum(tensor) for tensor in configuration.tensors)


def is_float_sum(tensor):
    return tensor.dtype == "float32" and tensor.op == "Sum" and tensor.count > 100
