"""Every example for TensorFlow runs, and learns. FARANDOLE_LONG=1: each under `farandole run`, and alone."""

import re
import signal
import sys

import pytest
from farandole import testing
from running import EPOCHS, EXAMPLES, LONG, accuracy, fitted_line, forked, launched, outlived, run, scripts, written

pytestmark = pytest.mark.timeout(300)

TENSORFLOW = EXAMPLES / "tensorflow"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}
SAVED = {"keras": "checkpoint-digits.keras", "tape": "checkpoint-digits.weights.h5", "graph": "checkpoint-digits"}
LAUNCHERS = {"forked": (2, None), "farandole run": (2, launched(2)), "alone": (1, [sys.executable])}
USED = ["farandole run", "alone"] if LONG else ["forked"]

testing.preload("tensorflow", "keras", "sklearn.datasets")


def started(launcher, folder, script, *arguments):
    ranks, launcher = LAUNCHERS[launcher]
    if launcher is None:
        return forked(ranks, folder, script, *arguments, **QUIET)
    return run([*launcher, script, *arguments], folder, **QUIET)


@pytest.mark.parametrize("launcher", USED)
@pytest.mark.parametrize("name", SAVED)
def test_digits(tmp_path, launcher, name):
    lines = started(launcher, tmp_path, TENSORFLOW / f"{name}_digits.py", "--epochs", str(EPOCHS))
    assert accuracy(lines) >= 0.96
    assert [path.name for path in tmp_path.iterdir()] == [SAVED[name]]


def test_digits_outlive_a_worker(tmp_path):
    assert outlived(TENSORFLOW / "elastic_digits.py", tmp_path, 1, signal.SIGKILL, "--epochs", "6") >= 0.9


if LONG:

    def test_the_script_of_the_page_for_users_of_a_strategy_takes_the_steps_of_one_process(tmp_path):
        _, ours = scripts("docs/guide/coming-from-tensorflow.md")
        lines = run([*launched(2), written(ours, tmp_path)], tmp_path, **QUIET)
        assert lines[-1] == f"[0] loss {fitted_line(half_of_square=False)[1]:.4f}"


@pytest.mark.parametrize("launcher", USED)
def test_resnet_says_how_fast_it_is(tmp_path, launcher):
    small = ["--image-size", "32", "--batch-size", "2", "--steps", "2", "--rounds", "1", "--compression", "bf16"]
    network = [] if LONG else ["--model", "VGG16"]  # a smaller graph than that of ResNet-50
    lines = started(launcher, tmp_path, TENSORFLOW / "resnet_synthetic.py", *small, *network)
    found = [re.search(r"round 1: loss [\d.]+, ([\d.]+) images/s on (\d) workers$", line) for line in lines]
    speeds = [(float(match[1]), int(match[2])) for match in found if match]
    assert [(speed > 0, number) for speed, number in speeds] == [(True, LAUNCHERS[launcher][0])], lines
