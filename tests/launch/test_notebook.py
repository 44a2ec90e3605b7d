"""`farandole.run` in the cells of a notebook, which nbclient executes in a kernel of IPython."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

TRAIN = """
import farandole
factor = 3
class Result:
    def __init__(self, value): self.value = value
def train(base):
    import sys
    farandole.init()
    print("hello from", farandole.rank())
    print("careful", file=sys.stderr)
    return Result(sum(farandole.allgather_object(base + factor * farandole.rank())))
"""
SLEEPS = """
import os, pathlib, signal, threading, time
folder = pathlib.Path(FOLDER)
def sleep():
    farandole.init()
    (folder / f"{os.getpid()}.pid").write_text("")
    time.sleep(60)
def interrupt():  # as the button of a notebook does
    while len(list(folder.glob("*.pid"))) < 2:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    farandole.run(sleep, np=2)
except KeyboardInterrupt:
    print("interrupted")
"""


def execute(folder: Path, *cells: str, **options: Any) -> list[list[Any]]:
    """The outputs of each cell."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "IPYTHONDIR": str(folder / "i")}
    options = {"timeout": 60, **options}
    nbclient.NotebookClient(
        book, kernel_name="python3", resources={"metadata": {"path": str(folder)}}, **options
    ).execute(env=environment)
    return [cell.outputs for cell in book.cells]


def text_of(outputs: list[Any], stream: str) -> str:
    text = "".join(each.text for each in outputs if each.output_type == "stream" and each.name == stream)
    return plain(text)


def plain(text: str) -> str:
    """Without colours, which IPython asks for."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_results_and_lines_come_into_the_cell(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def twice(n): return 2 * n\n")
    outputs = execute(
        tmp_path,
        TRAIN,
        "results = farandole.run(train, (10,), np=2)",
        "[each.value for each in results], {type(each) is Result for each in results}",
        "factor = 5",
        "[each.value for each in farandole.run(train, (10,), np=2)]",
        "from beside import twice\nfarandole.run(lambda: twice(factor), np=2)",
    )
    assert sorted(text_of(outputs[1], "stdout").splitlines()) == ["[0] hello from 0", "[1] hello from 1"]
    assert sorted(text_of(outputs[1], "stderr").splitlines()) == ["[0] careful", "[1] careful"]
    assert outputs[2][0].data["text/plain"] == "([23, 23], {True})"
    assert outputs[4][-1].data["text/plain"] == "[25, 25]"
    assert outputs[5][-1].data["text/plain"] == "[10, 10]"


def test_an_exception_is_that_of_the_cell_with_the_ranks_line(tmp_path: Path) -> None:
    outputs = execute(
        tmp_path,
        "import farandole\ndef train():\n    farandole.init()\n    if farandole.rank():\n        raise KeyError('bad')",
        "farandole.run(train, np=2)",
        "farandole.run(lambda: 4, np=2)",
        allow_errors=True,
    )
    (error,) = [each for each in outputs[1] if each.output_type == "error"]
    text = plain("\n".join(error.traceback))
    assert error.ename == "KeyError" and "rank 1 of 2" in text and "line 5, in train" in text
    assert "raise KeyError('bad')" in text and "farandole.run(train, np=2)" in text
    assert sys.version_info < (3, 11) or "_functions" not in text, text
    assert outputs[2][-1].data["text/plain"] == "[4, 4]"


def test_interrupting_the_cell_ends_the_ranks(tmp_path: Path) -> None:
    outputs = execute(tmp_path, "import farandole", SLEEPS.replace("FOLDER", repr(str(tmp_path))), "1 + 1")
    assert "interrupted" in text_of(outputs[1], "stdout")
    pids = [int(each.stem) for each in tmp_path.glob("*.pid")]
    assert len(pids) == 2 and not any(map(psutil.pid_exists, pids))
    assert outputs[2][-1].data["text/plain"] == "2"
