"""The examples on digits train on two executors to the same parameters as by `farandole run -np 2`."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import farandole_spark
import pytest
from parameters import digest
from spark_settings import SETTINGS

pytestmark = pytest.mark.timeout(400)
ROOT = Path(__file__).resolve().parents[2]
EPOCHS = "30" if os.environ.get("FARANDOLE_LONG") == "1" else "2"
EXAMPLES = ["torch/digits.py", "tensorflow/keras_digits.py"]


def call(script: str, checkpoint: str) -> None:
    sys.argv = [script, "--epochs", EPOCHS, "--checkpoint", checkpoint]
    runpy.run_path(script, run_name="__main__")


@pytest.mark.parametrize("example", EXAMPLES)
def test_digits_train_to_the_same_parameters(warm: Any, tmp_path: Path, example: str) -> None:
    script, suffix = ROOT / "examples" / example, ".pt" if "torch" in example else ".keras"
    ours, theirs = tmp_path / f"spark{suffix}", tmp_path / f"run{suffix}"
    farandole_spark.run(call, (str(script), str(ours)), num_proc=2)
    words = [sys.executable, script, "--epochs", EPOCHS, "--checkpoint", theirs]
    around = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [Path(sys.executable).parent / "python", "-m", "farandole.launch", "run", "-np", "2", *words]
    subprocess.run(command, env=around, check=True, timeout=200)
    assert digest(ours) == digest(theirs)


def test_the_example_for_spark_learns(around: Path) -> None:
    import pyspark

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    settings = [word for setting in SETTINGS.items() for word in ("--conf", "=".join(setting))]
    command = [submit, "--master", "local[2]", *settings, ROOT / "examples" / "spark" / "digits.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = [line for line in done.stdout.splitlines() if "epoch" in line or "accuracy" in line]  # stderr is there, too
    assert [line.partition("] ")[2].partition(":")[0] for line in told[:-1]] == [f"epoch {n}" for n in (5, 10, 15, 20)]
    assert float(told[-1].removeprefix("test accuracy ")) > 0.9


def kinds(notebook: Any) -> list[set[str]]:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [{each.output_type for each in cell.outputs if each.get("name") != "stderr"} for cell in cells]


def test_the_notebook_runs_and_shows_what_it_showed(around: Path, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(ROOT / "examples" / "spark" / "digits.ipynb", 4)
    before = kinds(notebook)
    NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert kinds(notebook) == before
    values = [each.data["text/plain"] for cell in notebook.cells for each in cell.get("outputs", ()) if "data" in each]
    assert float(values[2]) > 0.9
    assert values[3] == "(2, True)"
