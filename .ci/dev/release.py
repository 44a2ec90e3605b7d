"""Wheels and sdists for the package index: portable, reproducible, for several Pythons.

`python -m build` makes each sdist, and the wheel from the unpacked sdist. A wheel with compiled parts is linked against
an interface of glibc 2.28 (portable.py); auditwheel checks that and puts it into the name. Everything that depends on
the place or the time of a build has a fixed value, so that anyone can build the same bytes.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nox

from dev import MADE, ROOT, pins
from dev.environments import Environment, build_environment, interpreter_of
from dev.jobs import step
from dev.portable import GLIBC, make_toolchain

FOLDERS = ["core", "core/gloo", *(f"plugins/{name}" for name in ("torch", "tensorflow", "mxnet", "ray", "spark"))]
FOLDERS += ["plugins/horovod", "plugins/horovod/distribution"]
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


def build_release(session: nox.Session, home: Path, target: Path, names: Sequence[str]) -> list[Path]:
    """Build sdists and wheels into `target`; returns the wheels, in the order of their names.

    `home` is for intermediate files. `names` are Pythons, by default the one that runs this, and plugins, by default
    all.
    """
    pythons = [name for name in names if name in pins.PYTHONS]
    plugins = [f"plugins/{name}" for name in names if name not in pythons]
    if unknown := {*plugins}.difference(FOLDERS):
        session.error(f"neither a plugin nor a Python that we build for: {', '.join(sorted(unknown))}")
    for place in (home, target):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
    for folder in FOLDERS:
        if not plugins or folder in ("core", *plugins):
            for version in pythons if folder == "core" and pythons else [PYTHON]:
                _build(session, folder, version, home)
    tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{platform.machine()}"
    for made in home.iterdir():
        if made.name.endswith((".tar.gz", "-any.whl")):
            shutil.copy(made, target)
        else:
            repair = ["auditwheel", "repair", "--plat", tag, "--only-plat", "--wheel-dir", str(target), str(made)]
            _tools(session).run(*repair, silent=True, variables=_fixed())
    return sorted(target.glob("*.whl"))


def _tools(session: nox.Session, version: str = PYTHON) -> Environment:
    other = [] if version == PYTHON else [f"build-python-{version}", interpreter_of(version)]
    if other and not other[1]:
        session.error(f"there is no Python {version} in PATH or ~/.pyenv/versions: install it")
    env = build_environment(session, *other)
    env.require("release tools", pins.RELEASE_TOOLS, "about 20 MB")
    return env


def _fixed() -> dict[str, str]:
    """Times of files are that of the commit."""
    command = ["git", "log", "-1", "--format=%ct"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {"SOURCE_DATE_EPOCH": done.stdout.strip(), "PYTHONHASHSEED": "0"}


def _build(session: nox.Session, folder: str, version: str, home: Path) -> None:
    """Put the sdist of a distribution and its wheel into `home`."""
    compiled = (ROOT / folder / "CMakeLists.txt").exists()
    options, variables = [], _fixed()
    if compiled:
        variables["CMAKE_TOOLCHAIN_FILE"] = str(make_toolchain(MADE / "portable"))
    if folder == "core/gloo":
        gloo = os.environ.get("FARANDOLE_GLOO_SOURCE")
        if gloo:
            options = ["-C", f"cmake.define.FARANDOLE_GLOO_SOURCE={gloo}"]
            variables["CXXFLAGS"] = f"-ffile-prefix-map={gloo}=/gloo"
        else:
            session.warn("no wheel of farandole-gloo: FARANDOLE_GLOO_SOURCE, Gloo's sources, is not set")
            options = ["--sdist"]
    expect = "compiles C++, core: 2 to 5 minutes" if compiled else "some seconds"
    with step(f"Building {folder} with Python {version}", expect):
        command = ["python", "-m", "build", "--no-isolation", "--outdir", str(home), *options, folder]
        _tools(session, version).run(*command, silent=True, variables=variables)
