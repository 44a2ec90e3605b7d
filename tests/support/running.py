"""Runs an example as its users do, and reads what it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from farandole._start.environment import without_launchers
from farandole.testing import spawn

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
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


# Runs a script that goes on after its fourth epoch once there is a file "go".
HELD = """
import builtins, os, runpy, sys, time

tell = print

def tell_and_wait(*words, **options):
    tell(*words, **options)
    while "epoch 4 by" in str(words) and not os.path.exists("go"):
        time.sleep(0.01)

builtins.print = tell_and_wait
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def outlived(script: Path, folder: Path, victim: int, signum: int, *arguments: str) -> float:
    """The accuracy of an elastic example whose worker `victim` of three gets a signal after the second epoch.

    The signal may come late, but before the end of the fifth one. No epoch is finished twice. The line of one may be
    missing: that of an epoch whose last commit found the loss.
    """
    (folder / "held.py").write_text(HELD, encoding="utf-8")
    launcher = [sys.executable, "-m", "farandole.launch", "run", "-np", "3", "--min-np", "2", sys.executable]
    pids: dict[int, int] = {}
    lines: list[str] = []
    with subprocess.Popen(
        [*launcher, "held.py", script, *arguments],
        cwd=folder,
        env=without_launchers(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as job:
        assert job.stdout is not None
        watch = threading.Timer(LIMIT_S, job.kill)
        watch.start()
        try:
            for line in job.stdout:
                lines.append(line)
                if found := re.search(r"worker (\d) of 3 is process (\d+)", line):
                    pids[int(found[1])] = int(found[2])
                if "epoch 2 by" in line:
                    os.kill(pids[victim], signum)
                    (folder / "go").touch()
        finally:
            watch.cancel()
    output = "".join(lines)
    assert job.returncode == 0, output
    epochs = [(int(number), int(workers)) for number, workers in re.findall(r"epoch (\d+) by (\d) workers", output)]
    numbers, workers = zip(*epochs, strict=True)
    assert list(numbers) == sorted(set(numbers)), output
    assert set(range(1, numbers[-1] + 1)) - set(numbers) <= {3, 4, 5}, output
    assert len(numbers) >= numbers[-1] - 1 >= 4, output
    assert list(workers) == sorted(workers, reverse=True), output
    assert workers[:2] == (3, 3) and workers[-1] == 2, output
    (result,) = re.findall(r"test accuracy (\d\.\d+)", output)
    return float(result)


def accuracy(lines: list[str]) -> float:
    """The result in the last line; it stands in no other line."""
    match = re.fullmatch(r"(?:\[0\] )?test accuracy (\d\.\d{3})", lines[-1])
    assert match, lines
    assert len([line for line in lines if "accuracy" in line]) == 1
    return float(match[1])


def scripts(page: str) -> list[str]:
    """The blocks of Python of a page, each of which is a complete script."""
    found = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no script"
    return found


def fitted_line(half_of_square: bool) -> tuple[float, float]:
    """(slope, mean loss of the last epoch) of 3 x - 2 on 64 points: 3 epochs of SGD with batches of 16, rate 0.1."""
    x = [place / 64 for place in range(64)]
    factor = 1 if half_of_square else 2
    slope = height = 0.0
    losses: list[float] = []
    for start in [*range(0, 64, 16)] * 3:
        batch = x[start : start + 16]
        errors = [slope * each + height - (3 * each - 2) for each in batch]
        losses.append(factor / 2 * sum(error * error for error in errors) / 16)
        slope -= 0.1 * factor * sum(error * each for error, each in zip(errors, batch, strict=True)) / 16
        height -= 0.1 * factor * sum(errors) / 16
    return slope, sum(losses[-4:]) / 4


def written(script: str, folder: Path) -> Path:
    """The script as a file."""
    file = folder / "train.py"
    file.write_text(script, encoding="utf-8")
    return file
