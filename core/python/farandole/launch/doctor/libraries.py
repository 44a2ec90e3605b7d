"""CUDA's driver, NCCL and MPI: where they lie, found without loading them into this process.

The core is linked to none of them and looks for them when they are asked for. What they do on the network is theirs:
their sockets are not guarded by the job's key.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from farandole.launch.doctor.finding import Finding, ok, warn

# what -> pattern of the file's name
LIBRARIES: dict[str, str] = {
    "CUDA driver": r"libcuda\.so\.1",
    "NCCL": r"libnccl\.so\.2",
    "MPI": r"libmpi(?:ch)?\.so(?:\.\d+)*",
}
_WHEEL_FOLDERS = ("nvidia/nccl/lib", "nvidia/*/lib")
_LDCONFIG = ("/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig")


@dataclass(frozen=True)
class Facts:
    """What lies where."""

    found: Mapping[str, tuple[str, ...]]  # a key of LIBRARIES -> paths, the one that the linker prefers first
    gpus: tuple[str, ...]  # the driver's device files


def gather(environment: Mapping[str, str]) -> Facts:
    """Look through the linker's cache, LD_LIBRARY_PATH and the wheels of this Python."""
    files = [
        *_files_in(Path(folder) for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder),
        *_linker_cache(),
        *_files_in(
            folder for path in sys.path for pattern in _WHEEL_FOLDERS for folder in Path(path or ".").glob(pattern)
        ),
    ]
    gpus = sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*"))
    return Facts({name: matching(files, pattern) for name, pattern in LIBRARIES.items()}, tuple(gpus))


def matching(files: Iterable[str], pattern: str) -> tuple[str, ...]:
    """The paths whose last part matches, each once: links to the same file count once."""
    found: dict[str, str] = {}
    for file in files:
        if re.fullmatch(pattern, Path(file).name):
            found.setdefault(str(Path(file).resolve()), file)
    return tuple(found.values())


def _files_in(folders: Iterable[Path]) -> list[str]:
    return [str(file) for folder in folders if folder.is_dir() for file in sorted(folder.glob("lib*.so*"))]


def _linker_cache() -> list[str]:
    for program in _LDCONFIG:
        try:
            answer = subprocess.run([program, "-p"], capture_output=True, text=True, timeout=10, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        return [line.rpartition(" => ")[2].strip() for line in answer.splitlines() if " => " in line]
    return []


def judge(facts: Facts) -> list[Finding]:
    """What lies where -> findings."""
    return [_driver(facts), _library(facts, "NCCL"), _library(facts, "MPI")]


def _driver(facts: Facts) -> Finding:
    paths, check = facts.found.get("CUDA driver", ()), "CUDA driver"
    if facts.gpus and not paths:
        return warn(
            check,
            f"{len(facts.gpus)} NVIDIA GPU(s) are here, but no libcuda.so.1",
            "Install the driver's user library; in a container, start it with --gpus all.",
        )
    if paths and not facts.gpus:
        return ok(check, f"{', '.join(paths)}, but no GPU is visible")
    return ok(
        check, f"{', '.join(paths)}, {len(facts.gpus)} GPU(s)" if paths else "not found; needed for GPU tensors only"
    )


def _library(facts: Facts, name: str) -> Finding:
    paths = facts.found.get(name, ())
    if not paths:
        return ok(name, "not found where the system looks for libraries; Farandole's own collectives do without it")
    return ok(name, f"{', '.join(paths)}; the job's key does not guard its sockets")
