"""Wheels and sdists for the package index: portable, reproducible, for several Pythons.

    sources of a distribution (sources.py) -> sdist -> the same sources, unpacked -> wheels

A wheel with compiled parts is linked against an interface of glibc 2.28 (portable.py); auditwheel checks that and puts
it into the name. Everything that depends on the place or the time of a build has a fixed value, so that anyone can
build the same bytes.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nox

from dev import MADE, pins
from dev.environments import Environment, build_environment, interpreter_of
from dev.jobs import step
from dev.portable import GLIBC, make_toolchain
from dev.sources import commit_time, stage

FOLDERS = ["core", "core/gloo", *(f"plugins/{name}" for name in ("torch", "tensorflow", "mxnet", "ray", "spark"))]
FOLDERS += ["plugins/horovod", "plugins/horovod/distribution"]
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass(frozen=True)
class Release:
    """A folder for what is built, and what that is."""

    session: nox.Session
    home: Path  # of intermediate files
    target: Path  # of wheels and sdists
    names: Sequence[str] = ()  # Pythons, by default the one that runs this, and plugins, by default all

    def build(self) -> list[Path]:
        """Build everything; returns the wheels, in the order of their names."""
        pythons = [name for name in self.names if name in pins.PYTHONS]
        plugins = [f"plugins/{name}" for name in self.names if name not in pythons]
        if unknown := {*plugins}.difference(FOLDERS):
            self.session.error(f"neither a plugin nor a Python that we build for: {', '.join(sorted(unknown))}")
        for place in (self.home, self.target):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
        for folder in FOLDERS:
            if plugins and folder not in ("core", *plugins):
                continue
            sources = self._sdist(folder)
            if folder == "core/gloo" and not os.environ.get("FARANDOLE_GLOO_SOURCE"):
                self.session.warn("no wheel of farandole-gloo: FARANDOLE_GLOO_SOURCE, Gloo's sources, is not set")
                continue
            for version in pythons if folder == "core" and pythons else [PYTHON]:
                self._wheel(folder, sources, version)
        return sorted(self.target.glob("*.whl"))

    def _tools(self, version: str = PYTHON) -> Environment:
        other = [] if version == PYTHON else [f"build-python-{version}", interpreter_of(version)]
        if other and not other[1]:
            self.session.error(f"there is no Python {version} in PATH or ~/.pyenv/versions: install it")
        env = build_environment(self.session, *other)
        env.require("release tools", pins.RELEASE_TOOLS, "about 20 MB")
        return env

    def _sdist(self, folder: str) -> Path:
        """Put the sdist of a distribution into the target; returns its files, unpacked."""
        called = folder.replace("/", "-")
        with step(f"Making the sdist of {folder}", "some seconds"):
            staged, made, unpacked = (self.home / part / called for part in ("staged", "sdist", "sources"))
            stage(folder, staged)
            self._build(self._tools(), "--sdist", staged, made)
            (archive,) = made.glob("*.tar.gz")
            with tarfile.open(archive) as tar:
                tar.extractall(unpacked, filter="data")
            shutil.copy(archive, self.target)
        (sources,) = unpacked.iterdir()
        return sources

    def _wheel(self, folder: str, sources: Path, version: str) -> None:
        """Put the wheel of these sources into the target, with the name of its platform."""
        compiled = (sources / "CMakeLists.txt").exists()
        env, called = self._tools(version), f"{folder}, Python {version}" if folder == "core" else folder
        fresh = self.home / "wheel" / called.replace("/", "-")
        with step(
            f"Building the wheel of {called}", "compiles C++, core: 2 to 5 minutes" if compiled else "some seconds"
        ):
            if not compiled:
                self._build(env, "--wheel", sources, self.target)
                return
            build = self.home / "build" / fresh.name
            options = ["-C", f"build-dir={build}"]
            places = {sources: "farandole", build: "build"}  # in the compiled code: equal wherever it is built
            if folder == "core/gloo":
                gloo = Path(os.environ["FARANDOLE_GLOO_SOURCE"]).resolve()
                options += ["-C", f"cmake.define.FARANDOLE_GLOO_SOURCE={gloo}"]
                places[gloo] = "gloo"
            flags = " ".join(f"-ffile-prefix-map={place}=/{name}" for place, name in places.items())
            toolchain = make_toolchain(MADE / "portable")
            variables = {"CMAKE_TOOLCHAIN_FILE": str(toolchain), "CXXFLAGS": flags}
            self._build(env, "--wheel", sources, fresh, *options, variables=variables)
            (wheel,) = fresh.glob("*.whl")
            tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{platform.machine()}"
            repair = ["auditwheel", "repair", "--plat", tag, "--only-plat", "--wheel-dir", str(self.target), str(wheel)]
            env.run(*repair, silent=True, variables={"SOURCE_DATE_EPOCH": commit_time()})

    def _build(
        self,
        env: Environment,
        what: str,
        sources: Path,
        target: Path,
        *options: str,
        variables: dict[str, str] | None = None,
    ) -> None:
        """Run the frontend `build`, with the environment's own tools, and with fixed times and modes of files."""
        fixed = {"SOURCE_DATE_EPOCH": commit_time(), "PYTHONHASHSEED": "0"}
        command = ["python", "-m", "build", what, "--no-isolation", "--outdir", str(target), *options, str(sources)]
        env.run(*command, silent=True, variables={**fixed, **(variables or {})})
