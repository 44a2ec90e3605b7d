"""Every example runs, alone and on two workers, and learns."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from farandole._environment import without_starters

pytestmark = pytest.mark.timeout(300)

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = EXAMPLES / "torch" / "digits.py"
LINE = EXAMPLES / "numpy" / "line.py"


def run(command, folder):
    done = subprocess.run(
        command, cwd=folder, env=without_starters(), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def accuracy(line):
    match = re.fullmatch(r"(?:\[0\] )?test accuracy (\d\.\d{3})", line)
    assert match, line
    return float(match[1])


def test_digits_alone(tmp_path):
    lines = run([sys.executable, DIGITS], tmp_path)
    assert accuracy(lines[-1]) >= 0.97
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-digits.pt"]


@pytest.mark.parametrize("ranks", [2, 4])
def test_digits_on_several_workers(tmp_path, ranks):
    launcher = [sys.executable, "-m", "farandole.launch", "run", "-np", str(ranks)]
    began = time.monotonic()
    lines = run([*launcher, sys.executable, DIGITS, "--checkpoint", str(tmp_path / "model.pt")], tmp_path)
    assert accuracy(lines[-1]) >= 0.97
    assert len([line for line in lines if "accuracy" in line]) == 1
    assert (tmp_path / "model.pt").stat().st_size > 1000
    assert ranks > 2 or os.environ.get("CI") != "true" or time.monotonic() - began < 120


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_line_is_the_same_on_any_number_of_workers(tmp_path, ranks):
    launcher = [sys.executable, "-m", "farandole.launch", "run", "--no-prefix", "-np", str(ranks)]
    words = run([*launcher, sys.executable, LINE], tmp_path)[0].split()
    assert words == ["slope", "3.010", "height", "-2.008"]  # least squares of the 1000 points


def test_every_example_is_tested():
    assert [path.relative_to(EXAMPLES).as_posix() for path in sorted(EXAMPLES.rglob("*.py"))] == [
        "numpy/line.py",
        "torch/digits.py",
    ]
