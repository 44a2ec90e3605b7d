"""Every example for TensorFlow runs, alone and under `farandole run`, and learns."""

import re
import sys

import pytest
from running import EXAMPLES, accuracy, launched, run

pytestmark = pytest.mark.timeout(300)

TENSORFLOW = EXAMPLES / "tensorflow"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}
STARTERS = {"alone": (1, [sys.executable]), "farandole": (2, launched(2))}


@pytest.mark.parametrize("starter", STARTERS)
@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ("keras", "checkpoint-digits.keras"),
        ("tape", "checkpoint-digits.weights.h5"),
        ("graph", "checkpoint-digits"),
    ],
)
def test_digits(tmp_path, starter, name, saved):
    _, launcher = STARTERS[starter]
    assert accuracy(run([*launcher, TENSORFLOW / f"{name}_digits.py"], tmp_path, **QUIET)) >= 0.96
    assert [path.name for path in tmp_path.iterdir()] == [saved]


@pytest.mark.parametrize("starter", STARTERS)
def test_resnet_says_how_fast_it_is(tmp_path, starter):
    ranks, launcher = STARTERS[starter]
    small = ["--image-size", "32", "--batch-size", "2", "--steps", "2", "--rounds", "1", "--compression", "bf16"]
    lines = run([*launcher, TENSORFLOW / "resnet_synthetic.py", *small], tmp_path, **QUIET)
    found = [re.search(r"round 1: loss [\d.]+, ([\d.]+) images/s on (\d) workers$", line) for line in lines]
    speeds = [(float(match[1]), int(match[2])) for match in found if match]
    assert [(speed > 0, number) for speed, number in speeds] == [(True, ranks)], lines
