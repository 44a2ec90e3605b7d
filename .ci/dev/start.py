"""Before nox is there: what this machine lacks, and an environment for nox. The standard library alone."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from dev import MADE, ROOT
from dev.pins import NOX


def missing_requirements() -> str:
    """What this machine lacks and how to install it; empty if it lacks nothing."""
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    machine = f"{platform.system()} on {platform.machine()}"
    compilers = os.environ.get("CXX", "c++ g++ clang++").split()
    present = {
        f"Linux on x86-64 or aarch64 (this is {machine})": machine in ("Linux on x86_64", "Linux on aarch64"),
        f"Python 3.10 or newer (this is {python})": sys.version_info >= (3, 10),
        f"the venv module of {python}": all(map(importlib.util.find_spec, ("venv", "ensurepip"))),
        f"Python.h, the header of {python}": Path(sysconfig.get_path("include"), "Python.h").is_file(),
        f"a C++ compiler ({', '.join(compilers)})": any(map(shutil.which, compilers)),
    }
    missing = " and ".join(what for what, found in present.items() if not found)
    packages = "Debian, Ubuntu: apt install python3-venv python3-dev g++; Fedora: dnf install python3-devel gcc-c++"
    return f"This machine lacks {missing} ({packages})." if missing else ""


def start() -> None:
    """Run nox with this command's arguments, in an environment of its own. Does not return."""
    if missing := missing_requirements():
        sys.exit(missing)
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
