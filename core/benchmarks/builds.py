"""Compiles the two builds that gate.py compares, the frozen one and this checkout, with the same compiler and flags.

    python3 core/benchmarks/builds.py                  # compiles only; gate.py also compiles
    python3 core/benchmarks/builds.py --frozen FOLDER

The frozen build is kept, and made again only for another compiler or Python. Needs CMake, a C++17 compiler and
pybind11; those that `python3 noxfile.py` installs in .nox/build are found.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FROZEN = "00c07c712d382a8d24d415764dbc699c6c7b38be"  # the last commit before the core was restructured
MADE = ROOT / ".nox" / "gate"
DEFAULT_FROZEN = MADE / "frozen"
SHIPPED = ("frd_worker", "_core")  # targets of CMake
PACKAGES = ("core/python", "plugins/torch/src")  # what a rank imports
TOOLS = os.pathsep.join([str(ROOT / ".nox" / "build" / "bin"), os.environ.get("PATH", os.defpath)])


@dataclass(frozen=True)
class Build:
    """A compiled version of Farandole."""

    home: Path

    @property
    def programs(self) -> Path:
        """The folder of frd_worker."""
        return self.home / "cmake"

    @property
    def packages(self) -> Path:
        """The folder from which Python imports farandole and farandole_torch."""
        return self.home / "packages"


class BuildError(Exception):
    """A build failed. The message says why and what to do."""


def new_build() -> Build:
    """Build this checkout incrementally."""
    return compile_sources(ROOT, MADE / "new")


def frozen_build(folder: Path) -> Build:
    """Build FROZEN in `folder`, unless this compiler and Python have done so before."""
    home = folder.resolve() / FROZEN[:12]
    note = home / "made-with"
    if note.is_file() and note.read_text() == toolchain():
        return Build(home)
    shutil.rmtree(home, ignore_errors=True)
    extract(FROZEN, home / "sources")
    build = compile_sources(home / "sources", home)
    note.write_text(toolchain())
    return build


def extract(commit: str, folder: Path) -> None:
    """Write the files of a commit to `folder`."""
    command = ["git", "-C", str(ROOT), "-c", f"safe.directory={ROOT}", "archive", commit]
    answer = subprocess.run(command, capture_output=True, check=False)
    if answer.returncode:
        raise BuildError(f"git has no commit {commit}: {answer.stderr.decode().strip()}; fetch the whole history")
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(answer.stdout)) as archive:
        archive.extractall(folder, filter="data")


def compile_sources(sources: Path, home: Path, targets: Sequence[str] = SHIPPED, more: Sequence[str] = ()) -> Build:
    """Build the worker and the Python module as shipped, and copy the packages beside them.

    `more` are further options of CMake.
    """
    build = Build(home)
    print(f"==> Building {home}", file=sys.stderr, flush=True)
    options = ["-DFARANDOLE_BENCHMARKS=ON", "-DFARANDOLE_BINDINGS=ON", f"-DCMAKE_CXX_COMPILER={compiler()}"]
    options += [f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11_folder()}"]
    run("cmake", "-S", str(sources / "core"), "-B", str(build.programs), *generator(), *options, *more)
    jobs = str(len(os.sched_getaffinity(0)))
    run("cmake", "--build", str(build.programs), "--parallel", jobs, "--target", *targets)
    shutil.rmtree(build.packages, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.so", "__pycache__")  # a module in the sources is from another build
    for package in PACKAGES:
        shutil.copytree(sources / package, build.packages, ignore=ignored, dirs_exist_ok=True)
    run("cmake", "--install", str(build.programs), "--prefix", str(build.packages))
    return build


def toolchain() -> str:
    """Describe what a build depends on besides its sources."""
    return f"{run(compiler(), '--version')}\n{sys.version}\n"


def compiler() -> str:
    """The compiler that CMake would choose."""
    name = os.environ.get("CXX", "c++")
    if found := shutil.which(name, path=TOOLS):
        return found
    raise BuildError(f"there is no C++ compiler {name}; set CXX")


def generator() -> list[str]:
    return ["-G", "Ninja"] if shutil.which("ninja", path=TOOLS) else []


def pybind11_folder() -> str:
    if shutil.which("pybind11-config", path=TOOLS):
        return run("pybind11-config", "--cmakedir").strip()
    raise BuildError("there is no pybind11-config on PATH; python3 noxfile.py -s cpp installs it")


def run(*command: str) -> str:
    """Run a program of .nox/build or of the system, and return its output."""
    program = shutil.which(command[0], path=TOOLS)
    if program is None:
        raise BuildError(f"there is no {command[0]} on PATH; python3 noxfile.py -s cpp installs what is needed")
    words, environment = [program, *command[1:]], {**os.environ, "PATH": TOOLS}
    answer = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise BuildError(f"{' '.join(command)} failed:\n{answer.stdout[-4000:]}{answer.stderr[-4000:]}")
    return answer.stdout


def add_frozen_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--frozen", type=Path, default=DEFAULT_FROZEN, metavar="FOLDER", help="where the frozen build is kept"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_frozen_option(parser)
    options = parser.parse_args()
    try:
        for build in (frozen_build(options.frozen), new_build()):
            print(build.home)
    except BuildError as error:
        sys.exit(f"builds: {error}")


if __name__ == "__main__":
    main()
