"""Runs an example as its users do, and reads what it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from farandole._start.environment import without_launchers
from farandole.testing import spawn

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT_S = 240
LONG = bool(os.environ.get("FARANDOLE_LONG"))
EPOCHS = 30 if LONG else 8  # of the digits: what the examples do by default, or what is enough to see that they learn


def launched(ranks: int) -> list[str]:
    return [sys.executable, "-m", "farandole.launch", "run", "-np", str(ranks), sys.executable]


def run(command: list[str | Path], folder: Path, **variables: str) -> list[str]:
    """The lines that it prints on stdout."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**without_launchers(), "PATH": path, **variables}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines()


def forked(ranks: int, folder: Path, script: Path, *arguments: str | Path, **variables: str) -> list[str]:
    """The lines that rank 0 prints: like `farandole run`, but of ranks that need not import their framework."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        lines: list[str] = spawn(ranks, script, *arguments, timeout=LIMIT_S, env=variables)[0].splitlines()
        return lines


def accuracy(lines: list[str]) -> float:
    """The result in the last line; it stands in no other line."""
    match = re.fullmatch(r"(?:\[0\] )?test accuracy (\d\.\d{3})", lines[-1])
    assert match, lines
    assert len([line for line in lines if "accuracy" in line]) == 1
    return float(match[1])
