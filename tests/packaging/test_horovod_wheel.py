"""farandole-horovod as its users get it: a program written for Horovod runs in an empty environment, unchanged."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from wheels import Empty, requirements_of, wheel_of

SCRIPT = """
import torch
import horovod.torch as hvd

hvd.init()
print(hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist(), hvd.rank(), hvd.size(), flush=True)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Empty:
    empty = Empty(tmp_path_factory.mktemp("horovod"))
    wheels = [wheel_of(name) for name in ("farandole", "farandole_torch", "farandole_horovod", "horovod")]
    empty.install("--no-deps", *map(str, wheels))
    return empty


@pytest.fixture
def drop_in(installed: Empty) -> Iterator[Empty]:
    """PyTorch, and all else that the wheels need, is lent by the environment of this test."""
    with installed.borrowing():
        yield installed


def test_a_program_for_horovod_runs_unchanged(drop_in: Empty, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    output = drop_in.run("horovodrun", "-np", "2", "-H", "localhost:2", "python", str(script))
    assert sorted(output.splitlines()) == [f"[{rank}] [2.0, 2.0] {rank} 2" for rank in (0, 1)]


def test_it_has_the_version_of_horovods_api(drop_in: Empty) -> None:
    assert drop_in.run("horovodrun", "--version").strip() == "0.28.1"
    code = "import importlib.metadata as m, horovod; print(m.version('horovod'), horovod.__version__)"
    assert drop_in.run("python", "-c", code).split() == ["0.28.1+farandole", "0.28.1"]


def test_the_requirements_of_other_packages_are_met(installed: Empty) -> None:
    wanted = ["horovod==0.28.1", "horovod>=0.19.5", "horovod<=0.28.1", "horovod~=0.28.0", "horovod[pytorch]<0.29"]
    installed.install("--no-index", "--no-deps", *wanted)  # else pip finds nothing
    assert requirements_of(wheel_of("horovod"))[0] == "farandole-horovod==0.1.*"


def test_pip_check_accepts_it_for_a_client_of_exactly_this_version(installed: Empty) -> None:
    folder = Path(installed.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    client = folder / "client-1.dist-info"
    client.mkdir()
    try:
        for version, complaints in (("0.28.1", 0), ("0.28.0", 1)):
            required = f"Metadata-Version: 2.1\nName: client\nVersion: 1\nRequires-Dist: horovod=={version}\n"
            (client / "METADATA").write_text(required)
            command = [sys.executable, "-m", "pip", "--python", str(installed.bin / "python"), "check"]
            said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
            assert said.count("client 1 has requirement") == complaints, said
    finally:
        (client / "METADATA").unlink()
        client.rmdir()


def test_with_horovod_itself_there_is_one_sentence(installed: Empty) -> None:
    folder = Path(installed.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (ours,) = folder.glob("horovod-*.dist-info")
    theirs = folder / "horovod-0.28.1.dist-info"
    aside = ours.rename(folder / "aside")
    theirs.mkdir()
    (theirs / "METADATA").write_text("Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n")
    try:
        command = [installed.bin / "python", "-c", "import horovod.torch"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    finally:
        (theirs / "METADATA").unlink()
        theirs.rmdir()
        aside.rename(ours)
    assert done.returncode == 1
    told = "ImportError: Horovod 0.28.1 and farandole-horovod are both installed"
    assert done.stderr.splitlines()[-1].startswith(told)
