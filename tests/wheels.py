"""The wheels as users get them: in an empty environment, with no compiler in reach."""

from __future__ import annotations

import os
import subprocess
import venv
import zipfile
from pathlib import Path

WHEELS = [Path(path) for path in os.environ.get("FARANDOLE_WHEELS", "").split(os.pathsep) if path]
LIMIT_S = 120


def wheel_of(distribution: str) -> Path:
    found = [path for path in WHEELS if path.name.startswith(f"{distribution}-")]
    assert found, f"FARANDOLE_WHEELS names no wheel of {distribution}; start these tests with noxfile.py"
    return found[0]


class Empty:
    """An environment with nothing but what a test installs, whose PATH reaches nothing else."""

    def __init__(self, home: Path) -> None:
        venv.create(home, with_pip=True)
        self.bin = home / "bin"
        kept = {name: value for name, value in os.environ.items() if name not in ("PATH", "PYTHONPATH", "CXX", "CC")}
        self.environment = {**kept, "PATH": str(self.bin)}

    def run(self, *command: str) -> str:
        program = [str(self.bin / command[0]), *command[1:]]
        result = subprocess.run(
            program, env=self.environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert result.returncode == 0, f"{command} ended with {result.returncode}:\n{result.stdout}\n{result.stderr}"
        return result.stdout

    def install(self, *arguments: str) -> None:
        self.run("python", "-m", "pip", "install", "--disable-pip-version-check", "--only-binary", ":all:", *arguments)

    def folder(self) -> Path:
        return Path(self.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())


def strangers_in(wheel: Path) -> list[str]:
    """What is for who builds it or works on it."""
    endings = (".cc", ".h", ".cmake", "CMakeLists.txt", ".o", ".a")
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("/py.typed") for name in names)
    return [name for name in names if name.endswith(endings) or "tests/" in name or "benchmarks/" in name]
