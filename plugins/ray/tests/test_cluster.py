"""Programs on a Ray of two nodes, on a host of a lab: Ray wants an address that is not the loopback's.

`programs/` has them; each fails by itself. They run only if this file is named, as Ray takes 210 MB.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lab import Lab, lab_fixture  # noqa: F401  (a fixture)
from parameters import digest

pytest.importorskip("ray", reason="`python3 noxfile.py -s python -- plugins/ray/tests/test_cluster.py` installs Ray")
pytestmark = pytest.mark.timeout(400)
HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples"
LIMIT_S = 360.0
LONG, LONG_S = os.environ.get("FARANDOLE_LONG") == "1", 1800


@pytest.fixture
def run(lab: Lab, tmp_path: Path) -> Callable[..., str]:
    """run("calls.py", argument) runs a program to its good end, and returns its stdout."""

    def call(program: str, *arguments: object, limit_s: float = LIMIT_S) -> str:
        own = tmp_path / "own"  # other jobs of this machine write to /tmp
        own.mkdir()
        variables = [
            f"TMPDIR={own}",
            "RAY_TMPDIR=/run",
            "RAY_USAGE_STATS_ENABLED=0",
            "RAY_TRAIN_V2_ENABLED=1",
            "OMP_NUM_THREADS=1",
        ]
        words = ["env", *variables, sys.executable, HERE / "programs" / program, *map(str, arguments)]
        done = lab.hosts(1)[0].run(words, timeout=limit_s, cwd=tmp_path)
        assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    return call


def tell(out: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Show times that are measured and not judged."""
    with capsys.disabled():
        print("", *(line for line in out.splitlines() if line.startswith("measured:")), sep="\n")


def test_calls_results_and_failures(run: Callable[..., str]) -> None:
    out = run("calls.py")
    assert out.count("rank 0 is here") == out.count("rank 1 is here") == 3


def test_lines_are_complete_and_20_jobs_leave_nothing(
    run: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    tell(run("many.py"), capsys)


@pytest.mark.parametrize("example", ["torch/digits.py", "tensorflow/keras_digits.py"])
def test_digits_train_to_the_same_parameters_as_by_the_launcher(
    run: Callable[..., str], tmp_path: Path, example: str
) -> None:
    suffix = ".pt" if "torch" in example else ".keras"
    ours, theirs = tmp_path / f"ray{suffix}", tmp_path / f"run{suffix}"
    run("digits_twice.py", EXAMPLES / example, ours, theirs)
    assert digest(ours) == digest(theirs)


@pytest.mark.timeout(LONG_S)
def test_a_node_leaves_and_one_joins(run: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    tell(run("come_and_go.py", 20 if LONG else 1, limit_s=LONG_S if LONG else LIMIT_S), capsys)


def test_ray_train_has_reports_checkpoints_and_shards(run: Callable[..., str]) -> None:
    run("train.py")


def test_nothing_is_left_when_the_driver_is_interrupted_or_killed(run: Callable[..., str]) -> None:
    assert run("killed.py").count("interrupted") == 2


def test_the_notebook_runs_and_shows_what_it_showed(run: Callable[..., str]) -> None:
    run("notebook.py", EXAMPLES / "ray" / "digits.ipynb")
