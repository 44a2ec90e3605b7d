"""The wheels as users get them: in an empty environment, with no compiler in reach."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

WHEELS = [Path(path) for path in os.environ.get("FARANDOLE_WHEELS", "").split(os.pathsep) if path]
LIMIT_S = 120
_SYSTEM = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1"}
_SYSTEM |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def wheel_of(distribution: str) -> Path:
    found = [path for path in WHEELS if path.name.startswith(f"{distribution}-")]
    assert found, f"FARANDOLE_WHEELS names no wheel of {distribution}; start these tests with noxfile.py"
    return found[0]


class Empty:
    """An environment with nothing but what a test installs, whose PATH reaches nothing else."""

    def __init__(self, home: Path) -> None:
        venv.create(home, with_pip=False)  # that of this environment installs into it
        self.bin = home / "bin"
        kept = {name: value for name, value in os.environ.items() if name not in ("PATH", "PYTHONPATH", "CXX", "CC")}
        self.environment = {**kept, "PATH": str(self.bin)}

    def run(self, *command: str) -> str:
        return self._run(str(self.bin / command[0]), *command[1:])

    def _run(self, *program: str) -> str:
        result = subprocess.run(
            program, env=self.environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert result.returncode == 0, f"{program} ended with {result.returncode}:\n{result.stdout}\n{result.stderr}"
        return result.stdout

    def install(self, *arguments: str) -> None:
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "--disable-pip-version-check"]
        self._run(*pip, "install", "--only-binary", ":all:", *arguments)

    @contextlib.contextmanager
    def borrowing(self) -> Iterator[Empty]:
        """Within the block it has, after its own packages, those of the environment that these tests run in."""
        folder = self.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        lent = Path(folder, "lent.pth")
        lent.write_text(sysconfig.get_path("purelib") + "\n")
        yield self
        lent.unlink()


def strangers_in(wheel: Path) -> list[str]:
    """The files in the wheel that only a build or a developer needs."""
    endings = (".cc", ".h", ".cmake", "CMakeLists.txt", ".o", ".a")
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("/py.typed") for name in names)
    return [name for name in names if name.endswith(endings) or "tests/" in name or "benchmarks/" in name]


def requirements_of(wheel: Path) -> list[str]:
    """The packages that pip installs with the wheel."""
    archive = zipfile.ZipFile(wheel)
    (member,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    return sorted(Parser().parsestr(archive.read(member).decode()).get_all("Requires-Dist") or [])


def check_native_part(distribution: str, folder: Path) -> None:
    """Fail unless one binary serves every Python, needs nothing but the system and shows its own functions only."""
    wheel = wheel_of(distribution)
    name = wheel.name.replace("manylinux", "linux")
    assert re.fullmatch(rf"{distribution}-[\d.]+-py3-none-linux_\w*{platform.machine()}\.whl", name), name
    (member,) = [name for name in zipfile.ZipFile(wheel).namelist() if ".so" in name]
    library = Path(zipfile.ZipFile(wheel).extract(member, folder))
    assert library.name == f"lib{distribution}.so"
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", _output_of("readelf", "--dynamic", "--wide", library)))
    assert "libstdc++.so.6" in needed
    assert needed - _SYSTEM == set()
    lines = _output_of("nm", "--dynamic", "--defined-only", library).splitlines()
    shown = [line.split()[-1] for line in lines if line.split()[-2] in "TDBR"]
    assert f"{distribution}_open" in shown
    assert [name for name in shown if not name.startswith(f"{distribution}_")] == []
    wanted = _output_of("nm", "--dynamic", "--undefined-only", library)
    assert not re.search(r"\b(?:farandole_|Py|MX[A-Z]|TF_)", wanted), wanted


def _output_of(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
