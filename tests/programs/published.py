"""Programs from the package index, unpacked and installed as they are, and run on two ranks by horovodrun.

Nothing of theirs is part of this project: what they need is fetched into .nox/programs and kept there.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".nox" / "programs"
INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple")
STAND_INS = Path(__file__).parent / "stand_ins"
_LIMIT_S = 600


def unpacked(name: str, version: str, sha256: str) -> Path:
    """The folder of a source archive. pip would run its setup.py, which compiles where Horovod's own is concerned."""
    home = KEPT / f"{name}-{version}"
    if not home.exists():
        archive = KEPT / f"{name}-{version}.tar.gz"
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.write_bytes(_fetched(_address_of(name, archive.name)))
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == sha256, f"{archive} is not the file that was tried"
        with tarfile.open(archive) as contents:
            contents.extractall(KEPT, filter="data")
    return home


def _address_of(name: str, file_name: str) -> str:
    files = json.loads(_fetched(f"{INDEX}/{name}/", "application/vnd.pypi.simple.v1+json"))["files"]
    return next(file["url"] for file in files if file["filename"].lower().replace("_", "-") == file_name)


def _fetched(address: str, accept: str = "*/*") -> bytes:
    request = urllib.request.Request(address, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())


def installed(*requirements: str) -> Path:
    """A folder with exactly these packages, for PYTHONPATH: the environment of the framework stays as it is."""
    return _installed("--target", requirements)


def libraries_of(requirement: str) -> Path:
    """The folder of a package's shared libraries, for LD_LIBRARY_PATH."""
    return _installed("--prefix", (requirement,)) / "lib"


def _installed(option: str, requirements: tuple[str, ...]) -> Path:
    home = KEPT / f"site-{hashlib.sha256(' '.join([option, *requirements]).encode()).hexdigest()[:12]}"
    if not (home / "complete").exists():
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--no-deps",
            "--upgrade",
            "--ignore-installed",
            option,
            str(home),
        ]
        subprocess.run([*pip, *requirements], check=True, timeout=_LIMIT_S)
        (home / "complete").write_text("\n".join(requirements))
    return home


def on_two_ranks(
    *words: str | Path, folder: Path, paths: tuple[Path, ...] = (), options: tuple[str, ...] = (), **variables: str
) -> str:
    """The output of `python WORDS` as two ranks; `paths` come first in PYTHONPATH. Fails unless both end with 0."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1", **variables}
    environment |= {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONDONTWRITEBYTECODE": "1"}
    horovodrun = Path(sys.executable).with_name("horovodrun")
    command = [str(horovodrun), "-np", "2", "-H", "localhost:2", *options, sys.executable, *map(str, words)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    assert done.returncode == 0, (
        f"{command} ended with {done.returncode}:\n{done.stdout[-8000:]}\n{done.stderr[-8000:]}"
    )
    return done.stdout


def horovods_tests() -> Path:
    """The tests of Horovod 0.19.5, the newest version whose source archive has any."""
    sha256 = "428d9ba5ff277467be77e4e707d40b915f7d9e6920a2645f647fcb2cea59c366"
    return unpacked("horovod", "0.19.5", sha256) / "test"
