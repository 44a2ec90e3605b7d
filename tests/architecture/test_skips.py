"""tests/support/skips.py guards every other test run, so it is tested as it is used: in a run of its own."""

import os
import subprocess
import sys
from pathlib import Path

from skips import allowed_patterns, refused_skips
from tree import ROOT

SKIPPING = """
import pytest

def test_fine():
    pass

@pytest.mark.skip(reason="no such device")
def test_device():
    pass
"""


def run(folder: Path, ci: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(SKIPPING)
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT / "tests" / "support")}
    command = [sys.executable, "-m", "pytest", "-p", "skips", "-p", "no:cacheprovider", "."]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_skip_fails_under_ci(tmp_path: Path) -> None:
    result = run(tmp_path, ci="true")
    assert result.returncode == 1
    assert "test_it.py::test_device: skipped, and not in allowed_skips.txt" in result.stdout


def test_a_skip_passes_elsewhere(tmp_path: Path) -> None:
    assert run(tmp_path, ci="").returncode == 0


def test_patterns_end_before_their_reason() -> None:
    assert allowed_patterns("# about\n\na.py::test_*  # no device\n") == ["a.py::test_*"]


def test_brackets_in_patterns_are_letters() -> None:
    assert refused_skips(["a.py::test_b[2-tcp]", "a.py::test_c"], ["a.py::test_b[2-*]"]) == ["a.py::test_c"]
