"""Wheels and sdists for the package index: portable, reproducible, for several Pythons and machines.

    sources of a distribution (sources.py) -> sdist -> the same sources, unpacked -> wheels

A wheel with compiled parts is linked against an interface of glibc 2.28 (portable.py) and says so in its name. The core
is compiled once for a machine; of its wheels only the Python module differs. Everything that depends on the place or
the time of a build has a fixed value, so that anyone can build the same bytes.
"""

from __future__ import annotations

import platform
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import nox

from dev import MADE, pins
from dev.debian import gloo_source
from dev.environments import Environment, build_environment, interpreter_of
from dev.jobs import step
from dev.portable import GLIBC, Portable
from dev.sources import commit_time, stage

DISTRIBUTIONS = ("core", "core/gloo", "plugins/torch", "plugins/tensorflow", "plugins/mxnet", "plugins/ray")
HOROVOD = ("plugins/horovod", "plugins/horovod/distribution")
ENGINES = ("plugins/spark",)
NATIVE = platform.machine()
MACHINES = ("x86_64", "aarch64")


@dataclass(frozen=True)
class Release:
    """A folder for what is built, and the machines that it is built for."""

    session: nox.Session
    home: Path  # of intermediate files
    target: Path  # of wheels and sdists
    machines: Sequence[str] = (NATIVE,)
    pythons: Sequence[str] = pins.PYTHONS

    def build(self) -> list[Path]:
        """Build everything; returns the wheels, in the order of their names."""
        shutil.rmtree(self.target, ignore_errors=True)
        self.target.mkdir(parents=True)
        for folder in (*DISTRIBUTIONS, *HOROVOD, *ENGINES):
            sources = self._sdist(folder)
            if not (sources / "CMakeLists.txt").exists():
                self._wheel(folder, sources, self._tools())
                continue
            for machine in self.machines:
                self._native_wheels(folder, sources, machine)
        return sorted(self.target.glob("*.whl"))

    def _tools(self) -> Environment:
        env = build_environment(self.session)
        env.require("release tools", pins.RELEASE_TOOLS, "about 20 MB")
        return env

    def _sdist(self, folder: str) -> Path:
        """Put the sdist of a distribution into the target; returns its files, unpacked."""
        called = folder.replace("/", "-")
        with step(f"Making the sdist of {folder}", "some seconds"):
            staged, made, unpacked = (self.home / part / called for part in ("staged", "sdist", "sources"))
            stage(folder, staged)
            shutil.rmtree(made, ignore_errors=True)
            self._build(self._tools(), "--sdist", staged, made)
            (archive,) = made.glob("*.tar.gz")
            fresh = self.home / "fresh"
            shutil.rmtree(fresh, ignore_errors=True)
            with tarfile.open(archive) as tar:
                tar.extractall(fresh, filter="data")
            (content,) = fresh.iterdir()
            _replace(unpacked, content)
            shutil.copy(archive, self.target)
        return unpacked

    def _native_wheels(self, folder: str, sources: Path, machine: str) -> None:
        """Put the wheels of one distribution for one machine into the target."""
        portable = Portable(MADE / "portable" / machine, machine, machine == NATIVE)
        portable.make()
        build = self.home / "build" / machine / folder.replace("/", "-")
        defined: dict[str, object] = {}
        places = {sources: "farandole", build.parent: "build"}
        if folder == "core/gloo":
            defined["FARANDOLE_GLOO_SOURCE"] = gloo = gloo_source(self.session)
            places[gloo] = "gloo"
        # Paths in the compiled code: equal ones wherever it is built.
        flags = " ".join(f"-ffile-prefix-map={place}=/{name}" for place, name in places.items())
        variables = {"CMAKE_TOOLCHAIN_FILE": str(portable.toolchain), "CXXFLAGS": flags}
        if folder != "core":
            self._wheel(folder, sources, self._tools(), machine, build, defined, variables)
            return
        defined["FARANDOLE_CORE_LIBRARY"] = self._core_library(sources, build, machine, variables)
        for version in self.pythons:
            interpreter = interpreter_of(version)
            if not interpreter:
                self.session.error(f"there is no Python {version} in PATH or ~/.pyenv/versions: install it")
            env = build_environment(self.session, f"build-python-{version}", interpreter)
            env.require("release tools", pins.RELEASE_TOOLS, "about 20 MB")
            suffix = f".cpython-{version.replace('.', '')}-{machine}-linux-gnu.so"
            # pybind11 takes the suffix of the Python that builds.
            defined |= {"PYTHON_MODULE_EXTENSION": suffix, "PYTHON_MODULE_DEBUG_POSTFIX": "", "PYTHON_IS_DEBUG": "0"}
            more = variables | {"SETUPTOOLS_EXT_SUFFIX": suffix}
            called, place = f"{folder}, Python {version}", build.with_name(f"python-{version}")
            self._wheel(called, sources, env, machine, place, defined, more)

    def _core_library(self, sources: Path, build: Path, machine: str, variables: dict[str, str]) -> Path:
        """Compile what the wheels of all Pythons have in common."""
        with step(f"Compiling the core for {machine}", "2 to 4 minutes the first time"):
            env = self._tools()
            switches = ["-G", "Ninja", "-DFARANDOLE_BINDINGS=OFF", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
            env.run("cmake", "-S", str(sources), "-B", str(build), *switches, silent=True, variables=variables)
            env.run("cmake", "--build", str(build), "--target", "farandole_core", silent=True)
        return build / "libfarandole_core.a"

    def _wheel(
        self,
        called: str,
        sources: Path,
        env: Environment,
        machine: str = "",
        build: Path | None = None,
        defined: Mapping[str, object] = MappingProxyType({}),
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Put the wheel of these sources into the target, with the name of its platform."""
        with step(f"Building the wheel of {called}{f' for {machine}' * bool(machine)}", "compiles C++" * bool(machine)):
            fresh = self.home / "wheel"
            shutil.rmtree(fresh, ignore_errors=True)
            options = [f"cmake.define.{name}={value}" for name, value in defined.items()]
            options += [f"build-dir={build}"] if build else []
            settings = [part for option in options for part in ("-C", option)]
            host = {"_PYTHON_HOST_PLATFORM": f"linux-{machine}"} if machine else {}
            self._build(env, "--wheel", sources, fresh, *settings, variables={**variables, **host})
            (wheel,) = fresh.glob("*.whl")
            if machine:
                tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"
                env.run(
                    *("python", "-m", "wheel", "tags", "--remove", f"--platform-tag={tag}", str(wheel)),
                    silent=True,
                    variables={"SOURCE_DATE_EPOCH": commit_time()},
                )
                (wheel,) = fresh.glob("*.whl")
            shutil.copy(wheel, self.target)

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


def _replace(target: Path, content: Path) -> None:
    """Make `target` hold the files of `content`. Files that stay keep their times, so that they need no compilation."""
    wanted = {path.relative_to(content) for path in content.rglob("*") if path.is_file()}
    for old in [path for path in target.rglob("*") if path.is_file() and path.relative_to(target) not in wanted]:
        old.unlink()
    for name in wanted:
        if not (target / name).is_file() or (target / name).read_bytes() != (content / name).read_bytes():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(content / name, target / name)
