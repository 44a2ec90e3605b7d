"""Before nox is there: what this machine lacks, and an environment for nox. The standard library alone."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path

from dev import MADE, ROOT
from dev.pins import NOX


def accepts_cpp17(compiler: str) -> bool:
    source = "#include <optional>\n#include <string_view>\nint main() { return std::optional<int>(0).value(); }\n"
    command = [*compiler.split(), "-std=c++17", "-x", "c++", "-fsyntax-only", "-"]
    try:
        return subprocess.run(command, input=source.encode(), capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def missing_requirements() -> list[str]:
    """One sentence for each thing that this machine lacks."""
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    machine = f"{platform.system()} on {platform.machine()}"
    compilers = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    checks = {
        f"Farandole runs on Linux on x86-64 or aarch64 only, and this is {machine}.": (
            machine in ("Linux on x86_64", "Linux on aarch64")
        ),
        f"{python} is too old: install Python 3.10 or newer (Debian, Ubuntu: apt install python3; Fedora: dnf install "
        "python3) and start noxfile.py with it.": sys.version_info >= (3, 10),
        f"{python} has no venv module: install it (Debian, Ubuntu: apt install {python}-venv; Fedora: dnf install "
        "python3-libs).": all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")),
        f"Python.h, the header of {python}, is missing: install it (Debian, Ubuntu: apt install {python}-dev; Fedora: "
        "dnf install python3-devel).": Path(sysconfig.get_path("include"), "Python.h").is_file(),
        f"No C++ compiler that accepts -std=c++17 was found ({', '.join(compilers)}): install one (Debian, Ubuntu: apt "
        "install g++; Fedora: dnf install gcc-c++).": any(accepts_cpp17(compiler) for compiler in compilers),
    }
    return [sentence for sentence, holds in checks.items() if not holds]


def start() -> None:
    """Run nox with this command's arguments, in an environment of its own. Does not return."""
    sentences = missing_requirements()
    if sentences:
        sys.exit("\n".join(sentences))
    home = MADE / "bootstrap"
    python = home / "bin" / "python"
    stamp = home / "made-for"
    wanted = f"{NOX} {sys.version}"
    if not (python.exists() and stamp.is_file() and stamp.read_text() == wanted):
        print("==> Making the environment of the task runner in .nox/bootstrap (about 10 MB, 15 seconds)", flush=True)
        make = [sys.executable, "-m", "venv", "--clear", str(home)]
        fill = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", NOX]
        for command in (make, fill):
            if subprocess.run(command, check=False).returncode != 0:
                sys.exit(f"`{' '.join(command)}` failed, see above; is the package index within reach?")
        stamp.write_text(wanted)
    os.execv(python, [str(python), "-m", "nox", "-f", str(ROOT / "noxfile.py"), *sys.argv[1:]])
